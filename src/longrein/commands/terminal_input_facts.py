"""Facts for the terminal's input: keys, attachments, drafts, files of instructions."""

import os
from collections.abc import Sequence

from longrein.composition import Composition
from longrein.config import config_dir, project_root
from longrein.frontends.terminal.clipboard_image import clipboard_image
from longrein.frontends.terminal.input_facts import InputFacts
from longrein.frontends.terminal.key_names import ACTIONS
from longrein.run_context import RunContext


def folder_name(cwd: str) -> str:
    """Return the name under which something is kept for a folder, such as what was sent there."""
    return cwd.strip("/").replace("/", "-")[-200:] or "root"


def input_facts(place: RunContext, built: Composition) -> InputFacts:
    """Return the facts for the input of one session."""
    settings = place.settings
    reader = built.attachments()
    return InputFacts(
        keys={
            one.name: getattr(settings.keys, one.name)
            for one in ACTIONS
            if f"keys.{one.name}" in settings.origin
        },
        vim=settings.keys.vim,
        drafts=os.path.join(place.state_dir, "drafts", folder_name(place.cwd)),
        environ=place.environ,
        attachments=reader.read,
        image=reader.image,
        image_of=reader.image_of,
        clipboard=lambda: built.deps.workspace.run_in_thread(
            lambda: clipboard_image(place.environ)
        ),
        memory_files=lambda: memory_files(place),
    )


def memory_files(place: RunContext) -> Sequence[tuple[str, str]]:
    """Return (label, path) of the project's file of instructions, which may not exist yet, and
    of the user's own.
    """
    root = project_root(place.cwd)
    names = [
        name for name in place.settings.context.files if os.path.isfile(os.path.join(root, name))
    ]
    usual = (
        "AGENTS.md"
        if "AGENTS.md" in place.settings.context.files
        else next(iter(place.settings.context.files), "")
    )
    project = os.path.join(root, next(iter(names), usual))
    own = os.path.join(config_dir(place.environ, place.home), "AGENTS.md")
    return [*([("this project", project)] if usual else []), ("all your projects", own)]
