"""Skills and custom commands in a session: `/name` of the user, `Skill` of the model, and what they
allow meanwhile.

Commands in a text run before the model sees it: judged by the rules like any command, confined like
any command, and never with a question. Tools that a file of the user allows are allowed in the turn
that loads it, in this run, for the session of the user alone. A file of a project allows nothing.
Tools that a file takes away are refused in that turn.
"""

import asyncio
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.messages import Continue, InboxMessage, UserMessage, for_subagent
from longrein.agent.session import retrieve_error
from longrein.agent.session_part import Skills
from longrein.permissions import Hook, Rules
from longrein.settings_schema import SkillOptions
from longrein.tools import LoadedText, SkillBody, SkillInfo, SkillLibrary, find_skill, skill_content
from longrein_context.events import (
    AnyPart,
    Reminded,
    Text,
    ToolError,
    UsageError,
    UserSpoke,
    text_of,
)

if TYPE_CHECKING:
    from longrein.tools.argument_substitution import Piece


FILE_BYTES_MAX = 64 * 1024
"""Size of a file that a command inserts."""
FILES_MAX = 20
"""Files that one command inserts."""
DISABLED = "[shell command execution disabled by policy]"
"""The words of Claude Code."""
_INVOCATION = r"(?s)([/$])([^\s/$][^\s]*)(?:\s+(.*))?"
"""`/name arguments`, or `$name arguments` for a skill, as in Codex."""


class SessionSkills(Skills):
    """Implement `tools.SkillPort`, and the user's `/name`, for one session."""

    def __init__(self, library: SkillLibrary, options: SkillOptions) -> None:
        self._library, self._options = library, options
        self._known: tuple[SkillInfo, ...] = ()
        """Skills and commands at the last look."""
        self._nested: dict[str, SkillInfo] = {}
        self._invoked: set[str] = set()
        """Names that were loaded in this run: the log alone allows nothing."""
        self._told: dict[str, int] = {}
        """Name -> entry that told the model of it in this run."""
        self.telling: set[asyncio.Future[None]] = set()
        """Messages whose commands still run, before they are in the inbox."""

    def all(self) -> Sequence[SkillInfo]:
        found = {skill.name: skill for skill in self._library.all()}
        self._known = tuple((self._nested | found).values())
        return self._known

    @property
    def known(self) -> Sequence[SkillInfo]:
        return [skill for skill in self._known or self.all() if skill.for_user]

    # --- Loading ----------------------------------------------------------------------------------

    async def load(self, name: str, arguments: str, *, call: str) -> LoadedText:
        skill = find_skill(self.all(), name)
        known = self.session.state.skills.get(skill.name)
        by_user = (
            known is not None
            and known.turn == self.session.state.began_at
            and self.session.state.turn_open
        )
        if not skill.for_model and not by_user:
            raise ToolError(
                f"[user-only] Only the user starts {skill.name}, with /{skill.name}: go on without "
                "it."
            )
        text = await self._content(skill, arguments, call)
        self._invoked.add(skill.name)
        if known is not None and known.text == text and not skill.fork:
            text = (
                f"The skill {skill.name} is loaded already (r{known.seq}) and has not changed: "
                "follow it."
            )
        return LoadedText(skill.name, text, skill.fork, skill.agent)

    def tell(self, message: InboxMessage) -> "asyncio.Future[None] | None":
        """Put a message that names a skill or command into the inbox, with its text; None for any
        other message.

        The future is done when the message is on disk. It raises `UsageError`, one line, and need
        not be awaited.
        """
        if not isinstance(message, UserMessage) or for_subagent(message) not in (
            "",
            self.session.id,
        ):
            return None
        names_skill = bool(message.parts) and not (message.skill or message.verbatim)
        first = message.parts[0] if names_skill else None
        match = re.fullmatch(_INVOCATION, first.text.strip()) if isinstance(first, Text) else None
        if match is None:
            return None
        kinds = ("skill", "command") if match[1] == "/" else ("skill",)
        wanted = (
            one for one in self.all() if one.name == match[2] and one.for_user and one.kind in kinds
        )
        skill = next(wanted, None)
        if skill is None:
            return None
        told = asyncio.ensure_future(self._tell(message, skill, match[3] or ""))
        self.telling.add(told)
        told.add_done_callback(self._told_one)
        return told

    def take(self, message: InboxMessage) -> None:
        if isinstance(message, Continue | UserMessage):
            self.tell_new()

    @property
    def idle(self) -> bool:
        return not self.telling

    def _told_one(self, told: "asyncio.Future[None]") -> None:
        retrieve_error(told)
        self.telling.discard(told)
        self.session.poke()

    async def _tell(self, message: UserMessage, skill: SkillInfo, arguments: str) -> None:
        try:
            if skill.fork and "Skill" in self.session.deps.tools:
                self._library.body(skill)
                text = (
                    f"Call Skill with skill={skill.name!r} and args={arguments!r} now, then "
                    "tell what it reports."
                )
            else:
                text = await self._content(skill, arguments, "")
        except ToolError as error:
            raise UsageError(f"/{skill.name}: {_without_code(str(error))}") from None
        self._invoked.add(skill.name)
        parts: tuple[AnyPart, ...] = (message.parts[0], Text(text), *message.parts[1:])
        await self.session.inbox.put(
            msgspec.structs.replace(message, parts=parts, skill=skill.name)
        )

    def preloaded(self, names: Sequence[str]) -> list[UserSpoke]:
        found, known = [], self.all()
        for name in names:
            try:
                skill = find_skill(known, name)
                body = self._library.body(skill)
            except ToolError as error:
                self.session.notice(
                    f"a subagent works without a skill: {_without_code(str(error))}"
                )
                continue
            content = skill_content(skill, body.text, body)
            found.append(
                UserSpoke(
                    (Text(f"The skill {skill.name}, for your task:"), Text(content)),
                    "command",
                    skill.name,
                )
            )
        return found

    async def _content(self, skill: SkillInfo, arguments: str, call: str) -> str:
        from longrein.tools.argument_substitution import substitute

        body = self._library.body(skill)
        pieces = substitute(
            skill.style, body.text, arguments, self._variables(skill), skill.argument_names
        )
        text = "".join([await self._filled(skill, piece, call) for piece in pieces])
        return skill_content(skill, text + self._mentioned(body), body)

    def _variables(self, skill: SkillInfo) -> dict[str, str]:
        state = self.session.state
        return {
            "CLAUDE_SESSION_ID": self.session.id,
            "CLAUDE_SKILL_DIR": skill.folder,
            "CLAUDE_PROJECT_DIR": state.roots[0] if state.roots else state.cwd,
            "CLAUDE_EFFORT": "medium",
            **dict(skill.variables),
        }

    async def _filled(self, skill: SkillInfo, piece: "Piece", call: str) -> str:
        match piece.kind:
            case "command" if self._options.disable_commands:
                return DISABLED
            case "command":
                return await self._output(skill, piece.text, call)
            case "file":
                return self._file(piece.text)
            case _:
                return piece.text

    async def _output(self, skill: SkillInfo, command: str, call: str) -> str:
        """Run a command of the text and return its output. Raises `ToolError`."""
        from longrein.agent.current_rules import current_rules
        from longrein.agent.permission_check import command_verdict
        from longrein.agent.tool_runner import tool_context

        session = self.session
        tool = session.deps.tools.get("Bash")
        if tool is None:
            raise ToolError(f"[skill] {skill.source} runs `{command}`, and there is no Bash here.")
        verdict = command_verdict(
            current_rules(session), tool, command, session.state.cwd, self._allowed_by(skill)
        )
        if verdict.kind != "allow":
            how = "allow it with a rule in your settings"
            why = f": {verdict.reason}" if verdict.reason else ""
            raise ToolError(
                f"[skill] {skill.source} runs `{command}`, which needs permission{why}; {how}."
            )
        outcome = await tool.run(
            tool_context(session, call, tool, in_foreground=True), command=command
        )
        printed = text_of(outcome.parts)
        if outcome.status != "ok":
            raise ToolError(
                f"[skill] {skill.source}: `{command}` failed: {' '.join(printed.split())[:300]}"
            )
        return "" if printed == "(no output)" else printed

    # --- Files that a command mentions ------------------------------------------------------------

    def _mentioned(self, body: SkillBody) -> str:
        """Return the files that a text mentions as `@path`, to follow it. What is no file stays
        as it is written.
        """
        blocks = []
        for path in body.files[:FILES_MAX]:
            if self.session.deps.workspace.resolve(path, self.session.state.cwd).kind == "file":
                blocks.append(f'\n\n<file path="{path}">\n{self._file(path)}\n</file>')
        return "".join(blocks)

    def _file(self, path: str) -> str:
        """Return the text of a file that may be read without a question. Raises `ToolError`."""
        from longrein.agent.current_rules import current_rules
        from longrein.agent.permission_check import is_read_allowed

        session = self.session
        place = session.deps.workspace.resolve(path, session.state.cwd)
        if place.kind != "file":
            raise ToolError(f"[skill] it names the file {path}, and there is none.")
        if not is_read_allowed(current_rules(session), path):
            raise ToolError(
                f"[skill] it names the file {path}, which must not be read without a question."
            )
        try:
            data = session.deps.workspace.read(place.real, FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ToolError(f"[skill] the file {path} cannot be read: {error.strerror}.") from None
        if b"\0" in data:
            return f"({path} is a binary file and was not inserted)"
        text = data[:FILE_BYTES_MAX].decode("utf-8", "replace")
        return (
            text
            if len(data) <= FILE_BYTES_MAX
            else f"{text}\n(cut here: Read shows the rest of {path})"
        )

    # --- What they allow --------------------------------------------------------------------------

    def hooks_of(self, name: str) -> Sequence[Hook]:
        known = self._known or self.all()
        return next((skill.hooks for skill in known if skill.name == name), ())

    def rules(self, rules: Rules) -> Rules:
        state = self.session.state
        names = {
            name
            for name, skill in state.skills.items()
            if skill.turn == state.began_at and state.turn_open
        }
        active = [skill for skill in self._known if skill.name in names]
        allow: list[str] = []
        if self.session.deps.parent_policy is None:
            allow += [
                rule
                for skill in active
                if skill.name in self._invoked
                for rule in skill.allowed_tools
            ]
            allow += [
                f"Read(/{_literal(skill.folder)}/**)"
                for skill in self._known
                if skill.kind == "skill"
            ]
        deny = [rule for skill in active for rule in skill.disallowed_tools]
        if not allow and not deny:
            return rules
        return msgspec.structs.replace(
            rules, allow=(*rules.allow, *allow), deny=(*rules.deny, *deny)
        )

    def _allowed_by(self, skill: SkillInfo) -> tuple[str, ...]:
        return skill.allowed_tools if self.session.deps.parent_policy is None else ()

    # --- Skills that come later -------------------------------------------------------------------

    def tell_new(self, touched: Sequence[str] | None = None) -> None:
        state = self.session.state
        if state.prefix is None or self.session.deps.parent_policy is not None:
            return
        folders = dict.fromkeys(path.rpartition("/")[0] for path in touched or ())
        for folder in folders:
            self._nested |= {skill.name: skill for skill in self._library.nested(folder)}
        catalogue = "\n".join(text for text in state.prefix.context if "<available_skills>" in text)
        last = (
            state.ledger.summaries[-1] if state.ledger.summaries else 0
        )  # what it replaced is told again
        told = {
            one.key for one in state.notices if one.kind == "skill_available" and one.seq > last
        }
        told |= {*state.skills, *(name for name, seq in self._told.items() if seq > last)}
        for skill in self.all() if touched is None else (*self._known, *self._nested.values()):
            matches = not skill.paths or _touches(skill.paths, touched or (), state.cwd)
            if (
                not skill.for_model
                or skill.name in told
                or not matches
                or f"<name>{skill.name}</name>" in catalogue
            ):
                continue
            how = (
                "load it with Skill"
                if "Skill" in self.session.deps.tools
                else f"read {skill.path} to use it"
            )
            self._told[skill.name] = self.session.append(
                Reminded(
                    "skill_available", "", skill.name, f"{skill.name}: {skill.description} ({how})"
                )
            )


def _without_code(refusal: str) -> str:
    """Return a refusal without the code in brackets, which is for the model."""
    return re.sub(r"^\[[\w-]+\] ", "", refusal)


def _literal(path: str) -> str:
    """Return a path as a pattern that matches itself."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", path)


def _touches(globs: Sequence[str], touched: Sequence[str], cwd: str) -> bool:
    """Return whether one of the files matches one of the globs, relative to the folder or by its
    name.
    """
    base = cwd.rstrip("/") + "/"
    names = [path.removeprefix(base) for path in touched]
    return any(
        fnmatchcase(name, pattern.replace("**/", "*"))
        or fnmatchcase(name.rpartition("/")[2], pattern)
        for name in names
        for pattern in globs
    )
