"""The interactive terminal: run one session after another until the user leaves."""

import asyncio

import msgspec

from longrein.agent.hooks import SessionHooks
from longrein.app import Additions, App, AppSession
from longrein.app.run_context import RunContext
from longrein.commands.session_choice import adopt_one_shot, next_session
from longrein.config.model_choice import NoModelFound
from longrein.frontends.localization import language_of, translate, use_language
from longrein.frontends.stdio import say, show
from longrein.frontends.terminal import Outcome, run_terminal
from longrein.workspace import spooled_tasks, stop_background_task
from longrein_context.events import LongreinError

ASKING = Additions(asks_user=True)


async def run_interactive(context: RunContext) -> int:
    """Run the session of the options, then those that the user opens. Return the exit code."""
    app = App(msgspec.structs.replace(context, is_interactive=True), say)
    options = context.options
    try:
        opened = await app.open(additions=ASKING)
    except NoModelFound as error:
        use_language(context.settings.terminal.language or language_of(context.environ))
        show("".join(f"{translate(line)}\n" for line in str(error).splitlines()))
        return error.exit_code
    prompt = options.prompt
    choosing = options.resume == ""
    while True:
        adopt_one_shot(opened)
        outcome = await _run_session(opened, prompt, choosing=choosing)
        await opened.finish()
        left = opened
        if outcome.kind == "exit":
            await left.discard_unused()
            return outcome.code
        try:
            app = app.with_folder(outcome.folder) if outcome.folder else app
            copies = choosing and options.fork_session
            session, fresh = await next_session(app, left.session, outcome, copies=copies)
            opened = await app.open(session, fresh=fresh, additions=ASKING)
            if outcome.kind == "new":
                opened.session.part(SessionHooks).source = "clear"
            prompt = ""
            choosing = False
            if opened.session.id != left.session.id:
                await left.discard_unused()
        except LongreinError as error:
            say(str(error))
            opened = await app.open(opened.session.id, additions=ASKING)
            prompt = ""


async def _run_session(opened: AppSession, prompt: str, *, choosing: bool) -> Outcome:
    opened.let_user_answer()
    context = opened.app.context
    is_plain = context.options.plain or context.environ.get("TERM", "dumb") in ("dumb", "")
    outcome = await run_terminal(opened, plain=is_plain, prompt=prompt, choosing=choosing)
    if outcome.tasks == "stop":
        await _end_tasks(opened.log.folder)
    return outcome


async def _end_tasks(folder: str) -> None:
    """Stop the running tasks of a closed session; its next start takes their ends into the log."""
    running = [one.task for one in spooled_tasks(folder) if one.state == "running"]
    if running:
        say(f"ending {', '.join(running)}")
        await asyncio.gather(
            *(
                stop_background_task(folder, task, "stopped by longrein on leaving")
                for task in running
            )
        )
