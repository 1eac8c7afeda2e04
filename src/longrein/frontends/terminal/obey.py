"""What the commands do."""

from collections.abc import Callable

from longrein.agent import Rewind, SetMode, SetModel
from longrein.events import LongreinError
from longrein.frontends.context_page import reason_rows
from longrein.frontends.safe import escape_line
from longrein.frontends.terminal import commands, leaving
from longrein.frontends.terminal.beside_words import NOTHING_RUNS, TOO_LATE
from longrein.frontends.terminal.chooser import Row
from longrein.frontends.terminal.commands import Typed
from longrein.frontends.terminal.facts import Outcome
from longrein.frontends.terminal.lines import Line, line
from longrein.frontends.terminal.talk import Talk

Deed = Callable[[Talk, str], None]

EVERY_MODE = (*commands.MODES, "bypassPermissions")


def obey(talk: Talk, typed: Typed) -> None:
    """Carry out one command."""
    command = typed.command
    if command is None:
        talk.notice(commands.unknown(typed.name))
    elif command.idle_only and talk.session.busy:
        talk.notice(f"/{command.name} waits until the turn is over; Esc interrupts it")
    else:
        _DEEDS[command.name](talk, typed.argument)


def _show(talk: Talk, title: str, rows: list[Line]) -> None:
    talk.put(talk.scene.aside("answer", [line(("bold", title)), *rows]))


def _help(talk: Talk, _: str) -> None:
    _show(talk, "commands and keys", commands.help_lines())


def _model(talk: Talk, argument: str) -> None:
    if argument:
        talk.tell(SetModel(argument))
        return
    names = talk.facts.models()
    if names:
        talk.choose("which model?", [Row(name, name) for name in names], lambda name: talk.tell(SetModel(name)))
    else:
        talk.notice("say which: /model PROVIDER/MODEL")


def _mode(talk: Talk, argument: str) -> None:
    if argument and argument not in EVERY_MODE:
        talk.notice(f"there is no mode {argument}; it is one of {', '.join(EVERY_MODE)}")
    elif argument:
        talk.tell(SetMode(argument))
    else:
        talk.choose("which mode?", [Row(mode, mode) for mode in EVERY_MODE], lambda mode: talk.tell(SetMode(mode)))


def _clear(talk: Talk, _: str) -> None:
    go(talk, Outcome("new"))


def _resume(talk: Talk, argument: str) -> None:
    if argument:
        go(talk, Outcome("switch", argument))
    else:
        talk.spawn(choose_session(talk))


async def choose_session(talk: Talk) -> None:
    """Let the user choose another session of this folder, if there is one."""
    rows = await talk.facts.sessions() if talk.facts.sessions is not None else ()
    others = [Row(row.id, row.title or "(nothing said yet)", row.when) for row in rows if row.id != talk.session.id]
    if others:
        talk.choose("which session?", others, lambda chosen: go(talk, Outcome("switch", chosen)))
    else:
        talk.notice("there is no other session of this folder")


def _rewind(talk: Talk, _: str) -> None:
    prompts = talk.scene.prompts
    if not prompts:
        talk.notice("nothing was said yet, so there is nothing to go back to")
        return
    rows = [Row(str(prompt.seq), prompt.text.split("\n")[0][:300]) for prompt in reversed(prompts)]
    talk.choose("go back to before which of your words?", rows, lambda seq: _ask_files(talk, int(seq)))


def _ask_files(talk: Talk, seq: int) -> None:
    rows = [
        Row("", "the conversation only", "files stay as they are"),
        Row("files", "the conversation and the files", "where they are still as longrein wrote them"),
    ]
    talk.choose("what goes back?", rows, lambda what: _go_back(talk, seq, files=bool(what)))


def _go_back(talk: Talk, seq: int, *, files: bool) -> None:
    said = next((prompt.text for prompt in talk.scene.prompts if prompt.seq == seq), "")
    talk.tell(Rewind(seq - 1, files))
    if not talk.buffer.text:
        talk.buffer.insert_text(talk.pastes.fold(said))


def _word(name: str) -> Deed:
    def deed(talk: Talk, argument: str) -> None:
        word = commands.compaction_word(name, argument)
        if isinstance(word, str):
            talk.notice(word)
        elif word is not None:
            talk.tell(word)

    return deed


def _compact(talk: Talk, argument: str) -> None:
    if argument == "--dry-run":
        _show(talk, "what a compaction would do now", [line(escape_line(row)) for row in talk.facts.analysis()])
    else:
        _word("compact")(talk, argument)


def _context(talk: Talk, argument: str) -> None:
    if argument:
        rows = reason_rows(talk.facts.reasons(argument))
        _show(talk, f"why {escape_line(argument)} stands as it does", [line(escape_line(row)) for row in rows])
        return
    report = talk.facts.context_report()
    if report is not None:
        _show(talk, "what fills the context", commands.context_lines(report))


def _pins(talk: Talk, _: str) -> None:
    _show(talk, "pinned", commands.pin_lines(talk.session.state.pins))


def _pin(talk: Talk, argument: str) -> None:
    if argument:
        _word("pin")(talk, argument)
        talk.notice(f"pinned: {escape_line(argument)}")
    else:
        _pins(talk, "")


def _cost(talk: Talk, _: str) -> None:
    _show(talk, "what this session used", commands.cost_lines(talk.session.state))


# --- beside the conversation -------------------------------------------------------------------------------------


def _beside(name: str) -> Deed:
    return lambda talk, argument: talk.spawn(_obey_beside(talk, name, argument))


async def _obey_beside(talk: Talk, name: str, argument: str) -> None:
    try:
        told = await talk.company.obey(name, argument, talk.pastes.expand)
    except LongreinError as error:
        talk.notice(str(error))
        return
    if told.title:
        _show(talk, told.title, list(told.rows))
    if told.notice:
        talk.notice(told.notice)
    if told.edit:
        talk.edit(told.edit)
    talk.kick()


def _stop(talk: Talk, argument: str) -> None:
    rows = talk.company.running()
    if argument or not rows:
        talk.spawn(_obey_beside(talk, "stop", argument))
    else:
        talk.choose("stop which?", rows, lambda chosen: talk.spawn(_obey_beside(talk, "stop", chosen)))


def take_back(talk: Talk) -> None:
    """The newest message that waits goes back into the input."""
    taken = talk.company.waiting.take()
    if taken is None:
        talk.warn(TOO_LATE)
    else:
        talk.edit(talk.company.edited(taken))


def background(talk: Talk) -> None:
    """The running command goes to the background."""
    if not talk.session.background():
        talk.warn(NOTHING_RUNS)


# --- leaving -----------------------------------------------------------------------------------------------------


def go(talk: Talk, outcome: Outcome) -> None:
    """The user wants to leave: while tasks run, they are asked what becomes of those. Said twice it is done at once."""
    running = list(talk.scene.beside.tasks.values())
    if talk.leaving is not None or not running:
        talk.leave(talk.leaving or outcome)
        return
    talk.leaving = outcome
    if talk.facts.leave_policy == "ask":
        talk.choose(leaving.question(running), leaving.choices(len(running)), lambda choice: _go(talk, outcome, choice))
    else:
        _go(talk, outcome, talk.facts.leave_policy)


def _go(talk: Talk, outcome: Outcome, choice: str) -> None:
    talk.leaving = outcome if choice != "stay" else None
    if choice != "stay":
        talk.spawn(_settle(talk, outcome, choice))


async def _settle(talk: Talk, outcome: Outcome, choice: str) -> None:
    talk.warn(leaving.settling(len(talk.scene.beside.tasks), choice))
    try:
        outcome = await leaving.settle(talk.session, outcome, choice)
    except LongreinError as error:
        talk.notice(str(error))
    talk.leave(outcome)


def _exit(talk: Talk, _: str) -> None:
    go(talk, Outcome("exit"))


_DEEDS = {
    "help": _help,
    "model": _model,
    "mode": _mode,
    "clear": _clear,
    "resume": _resume,
    "rewind": _rewind,
    "compact": _compact,
    "uncompact": _word("uncompact"),
    "context": _context,
    "pin": _pin,
    "unpin": _word("unpin"),
    "pins": _pins,
    "cost": _cost,
    "exit": _exit,
    **{name: _beside(name) for name in commands.BESIDE},
    "stop": _stop,
}
