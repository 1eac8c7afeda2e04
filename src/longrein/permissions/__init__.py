"""May this call happen? (call, rules, mode, cwd) -> allow, ask or deny, with the reason. Pure."""

from longrein.permissions.port import Call, Mode, Rules, Touched, Verdict

__all__ = ["Call", "Mode", "Rules", "Touched", "Verdict"]
