"""Which model a subagent runs on: what the environment says for all of them, else what is asked for, else its parent's.

An alias (`haiku`) or a bare id is looked for among the models the settings name, then among those of the parent's own
provider; of several the newest. What cannot be had is no error: the parent's model does the work, and that is said.
"""

import re
from collections.abc import Mapping

from longrein.config.choosing import choose_model
from longrein.config.settings import Settings
from longrein.events import LongreinError
from longrein.models import known_models, known_provider, look_up

VARIABLES = ("LONGREIN_SUBAGENT_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""The first that is set holds for every subagent, whatever it asks for."""


def subagent_model(asked: str, parent: str, settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """(`provider/model`, note) for a subagent that asks for `asked`, '' for its parent's, which is `parent`.

    The note is '' when it gets what it asks for.
    """
    variable = next((name for name in VARIABLES if environ.get(name, "").strip()), "")
    wanted = environ[variable].strip() if variable else asked.strip()
    over = f"{asked} is not used: {variable} says {wanted}" if variable and asked.strip() not in ("", wanted) else ""
    if wanted in ("", "inherit"):
        return "", over
    name = wanted if "/" in wanted else resolved(wanted, parent, settings)
    why = _problem(name, settings, environ) if name else f"no configured model is called {wanted!r}"
    return ("", f"{why}; it runs on the model of its parent") if why else (name, over)


def resolved(alias: str, parent: str, settings: Settings) -> str:
    """The `provider/model` that an alias or a bare id stands for here; '' for none."""
    provider = parent.partition("/")[0]
    named = (settings.model, settings.fallback_model, settings.compact_model)
    configured = list(dict.fromkeys((*filter(None, named), *settings.models)))
    known = known_provider(provider)
    sold = known_models() if known is not None and not known.local else ()
    offered = [f"{provider}/{model}" for model in sold if look_up(provider, model).price is not None]
    for names in (configured, offered):
        fitting = [name for name in names if _fits(alias, name)]
        if fitting:
            return max(fitting, key=lambda name: (name.startswith(f"{provider}/"), _version(name)))
    return ""


def _fits(alias: str, name: str) -> bool:
    """Whether `alias` is a model's id, or one of the words it is made of."""
    model = name.partition("/")[2].lower()
    return alias.lower() == model or alias.lower() in re.split(r"[-_./:@]", model)


def _version(name: str) -> tuple[int, ...]:
    """The numbers of a name; a date is no version."""
    return tuple(int(digits) for digits in re.findall(r"\d+", name.partition("/")[2]) if len(digits) < 6)


def _problem(name: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """Why the model cannot be had; '' when it can."""
    try:
        choose_model(settings, environ, name=name)
    except LongreinError as error:
        return str(error).rstrip(".")
    return ""
