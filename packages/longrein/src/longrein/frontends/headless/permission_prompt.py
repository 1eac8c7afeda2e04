"""Permission questions to the program that runs longrein: the control request `can_use_tool`, its
answer, and the questions that are open.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent import Answer, InboxMessage, OpenSession, SetMode
from longrein.frontends.headless.control_lines import ControlChannel, ControlError
from longrein.frontends.headless.run_state import RunState
from longrein.frontends.headless.stream_json_blocks import Line, tool_input
from longrein.frontends.loop_streams import cancel_all
from longrein.options import MODES
from longrein_context.events import PermissionAsked, ToolCall

ALWAYS = ("userSettings",)
"""Destinations of a rule that is to hold in later sessions too; others hold for this session."""


class HostVerdict(msgspec.Struct, frozen=True):
    """Decision of the program on one call."""

    words: tuple[InboxMessage, ...]
    """Messages for the session; the last one is the answer."""
    interrupt: bool = False
    notes: tuple[str, ...] = ()
    """Lines about parts of the answer that have no effect."""


def question_fields(asked: PermissionAsked, call: ToolCall, call_id: str, agent: str) -> Line:
    """Return the fields of `can_use_tool`; `call_id` is the call's id in the output, `agent` the
    subagent's label.
    """
    first = next(iter(asked.shown.splitlines()), "")
    return {
        "tool_name": asked.name,
        "input": tool_input(call),
        "permission_suggestions": _suggestions(asked),
        "decision_reason": asked.reason,
        "tool_use_id": call_id,
        "display_name": asked.name,
        "title": f"{asked.name} needs permission",
        "description": first,
        **({"agent_id": agent} if agent else {}),
    }


def _suggestions(asked: PermissionAsked) -> list[Line]:
    """Return the lasting answers: the narrow rules, and the mode that allows all edits."""
    rules = [_rule_fields(rule) for rule in asked.suggestion.splitlines()]
    found: list[Line] = []
    if rules:
        found.append({"type": "addRules", "rules": rules, "behavior": "allow"})
    if asked.edits:
        found.append({"type": "setMode", "mode": "acceptEdits"})
    return [{**update, "destination": "session"} for update in found]


def _rule_fields(rule: str) -> Line:
    match = re.fullmatch(r"([^()]+)\((.*)\)", rule, re.DOTALL)
    return {"toolName": match[1], "ruleContent": match[2]} if match else {"toolName": rule}


def read_verdict(
    response: Any, asked: PermissionAsked, call: ToolCall, subagent: str
) -> HostVerdict:
    """Read the program's answer; one that cannot be read denies. `subagent`: session of the
    subagent that asks.
    """
    match response:
        case {"behavior": "allow"}:
            return _allowed(response, asked, call, subagent)
        case {"behavior": "deny"}:
            denial = _denial(asked.call, str(response.get("message") or ""), subagent)
            return HostVerdict((denial,), interrupt=response.get("interrupt") is True)
        case _:
            return HostVerdict(
                (_denial(asked.call, "the answer to can_use_tool has no behavior", subagent),)
            )


def refused(asked: PermissionAsked, why: str, subagent: str) -> HostVerdict:
    """Return the denial of a call about which the program could not be asked."""
    return HostVerdict((_denial(asked.call, why, subagent),))


def _denial(call: str, message: str, subagent: str) -> Answer:
    return Answer(call, "deny", message=message, by="user", session=subagent)


def _allowed(
    response: Mapping[str, Any], asked: PermissionAsked, call: ToolCall, subagent: str
) -> HostVerdict:
    changed = response.get("updatedInput")
    if changed is not None and not isinstance(changed, dict):
        return refused(
            asked, "the answer to can_use_tool has an updatedInput that is no object", subagent
        )
    arguments = changed if changed is not None and changed != tool_input(call) else None
    updates = response.get("updatedPermissions") or ()
    scope = "once"
    rules = list[str]()
    modes = list[SetMode]()
    notes = list[str]()
    for update in _objects(updates):
        match update:
            case {"type": "setMode", "mode": str(mode)} if mode in MODES:
                modes.append(SetMode(mode))
            case {"type": "addRules", "behavior": "allow", "rules": [*given]} if (
                arguments is None and (found := _proposed(given, asked.suggestion))
            ):
                rules += found
                scope = "always" if update.get("destination") in ALWAYS else "session"
            case _:
                notes.append(_without_effect(update))
    answer = Answer(
        asked.call, "allow", rule="\n".join(rules), by="user", session=subagent, arguments=arguments
    )
    answer = msgspec.structs.replace(answer, scope=scope)
    return HostVerdict((*modes, answer), notes=tuple(notes))


def _objects(found: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in (found if isinstance(found, list) else ()) if isinstance(one, dict))


def _proposed(given: Sequence[Any], suggestion: str) -> list[str]:
    """Return the rules in `given` as longrein spells them; none where one of them was not
    proposed.
    """
    proposed = {tuple(sorted(_rule_fields(rule).items())): rule for rule in suggestion.splitlines()}
    found = []
    for rule in _objects(list(given)):
        fields = {key: rule[key] for key in ("toolName", "ruleContent") if rule.get(key)}
        found.append(proposed.get(tuple(sorted(fields.items())), ""))
    return found if len(found) == len(given) and all(found) else []


def _without_effect(update: Mapping[str, Any]) -> str:
    kind = str(update.get("type"))[:40]
    return (
        f"updatedPermissions: {kind} has no effect: only suggested rules can be added, and the "
        "mode set"
    )


# --- The open questions ---------------------------------------------------------------------------


class HostPermissions:
    """The open questions of one session and its subagents."""

    def __init__(
        self,
        session: OpenSession,
        channel: ControlChannel,
        notice: Callable[[str], None],
        report_state: Callable[[str], None],
    ) -> None:
        """`notice` takes lines for the user, `report_state` the states `requires_action` and
        `running`.
        """
        self._session, self._channel = session, channel
        self._notice, self._report_state = notice, report_state
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    def ask(
        self, asked: PermissionAsked, call: ToolCall, run_state: RunState, subagent: str
    ) -> None:
        """Ask about `call`; the session gets the answer when it comes. `subagent`: session of the
        subagent that asks.
        """
        self.forget(asked.call, subagent)
        fields = question_fields(asked, call, run_state.qualified_id(asked.call), run_state.label)
        self._report_state("requires_action")
        run_state.decided.add(asked.call)
        self._asking[subagent, asked.call] = asyncio.create_task(
            self._ask(asked, call, subagent, fields, run_state.decided)
        )

    async def _ask(
        self,
        asked: PermissionAsked,
        call: ToolCall,
        subagent: str,
        fields: dict[str, object],
        decided: set[str],
    ) -> None:
        try:
            verdict = read_verdict(
                await self._channel.request("can_use_tool", fields), asked, call, subagent
            )
        except ControlError as error:
            if self._channel.is_closed:
                decided.discard(asked.call)
            verdict = refused(asked, str(error), subagent)
        await self._apply(verdict)

    async def _apply(self, verdict: HostVerdict) -> None:
        for line in verdict.notes:
            self._notice(line)
        if len(self._asking) < 2:
            self._report_state("running")
        told = [self._session.tell(word) for word in verdict.words]
        if verdict.interrupt:
            # before the answer is taken, so that the model is not asked again
            self._session.interrupt()
        for written in told:
            await written

    def forget(self, call: str, subagent: str = "") -> None:
        """Take back the question about a call that has ended."""
        task = self._asking.pop((subagent, call), None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        asking, self._asking = list(self._asking.values()), {}
        await cancel_all(asking)
