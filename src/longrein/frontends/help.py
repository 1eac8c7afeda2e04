"""The help pages, drawn from the table of flags."""

from longrein.frontends.flags import COMMANDS, EXIT_CODES, MAIN, Command, Flag

_EXAMPLES = (
    ("longrein", "talk in this folder"),
    ('longrein -p "why does the build fail?" < build.log', "one answer, and out"),
    ("longrein -c", "go on where you stopped, also after a crash"),
    ("longrein -p -c", "finish the turn that was cut"),
    ('longrein -p "mend the tests" --allowedTools "Edit,Bash(make)"', "nobody there to ask"),
)

_PROMPT = (
    "A PROMPT of several words is put in quotes and may begin with any word. One word alone that is a command of other "
    "agents, such as `login`, is sent to the model only after `--` or with -p, -c or -r."
)

_STDIN = (
    "What is piped in is added to PROMPT (10 MB at most). With a PROMPT, a pipe that says nothing for 3 seconds is "
    "left alone; once it has spoken, it is read to its end. "
    "The prompt - takes all of stdin as the prompt, however long that takes."
)


def help_page(command: Command, width: int = 100) -> str:
    """The page of `command`, at most `width` columns (at least 60 are used)."""
    from click.formatting import HelpFormatter

    width = max(width, 60)
    page = HelpFormatter(width=width, max_width=width)
    page.write_usage(f"longrein {command.name}".rstrip(), command.usage)
    page.write_paragraph()
    page.write_text(command.help)
    for title, rows in _sections(command):
        with page.section(title):
            page.write_dl(rows, col_max=34)
    if command is MAIN:
        for title, text in (("Prompt", _PROMPT), ("Stdin", _STDIN)):
            with page.section(title):
                page.write_text(text)
    return page.getvalue()


def _sections(command: Command) -> list[tuple[str, list[tuple[str, str]]]]:
    """Headings, each with its rows: a spelling and what it does."""
    if command is not MAIN:
        return [("Flags", [(_spelling(f), f.help) for f in command.flags])]
    groups = dict.fromkeys(flag.group for flag in command.flags)
    flags = [(group, [(_spelling(f), f.help) for f in command.flags if f.group == group]) for group in groups]
    commands = [(c.name, c.help) for c in COMMANDS.values() if c.name]
    return [("Examples", list(_EXAMPLES)), ("Commands", commands), *flags, ("Exit codes", list(EXIT_CODES))]


def _spelling(flag: Flag) -> str:
    value = f"[{flag.metavar}]" if flag.kind == "maybe" else flag.metavar
    names = [name for name in flag.names if len(name) == 2]
    return f"{', '.join((*names, flag.name))} {value}".rstrip()
