"""The values that must never be stored: keys of providers and whatever else the environment holds of that kind."""

from collections.abc import Mapping

from longrein.config.settings import Settings

_SECRET_WORDS = frozenset(
    ("KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "PAT")
)
_VALUE_CHARS_MIN = 8


def known_secrets(environ: Mapping[str, str], settings: Settings) -> tuple[str, ...]:
    """Values to redact: of variables whose name says so, of the providers' keys, of those the settings name.

    Longest first. Short values, paths and plain words such as `true` are left out: replacing them would garble text.
    """
    named = {*settings.redact_env, *(p.api_key_env for p in settings.providers.values())}
    values = [
        value.strip()
        for name, value in environ.items()
        if (name in named or (_says_secret(name) and _like_a_secret(value))) and len(value.strip()) >= _VALUE_CHARS_MIN
    ]
    return tuple(sorted(dict.fromkeys(values), key=lambda value: (-len(value), value)))


def _says_secret(name: str) -> bool:
    return not _SECRET_WORDS.isdisjoint(name.upper().split("_"))


def _like_a_secret(value: str) -> bool:
    """Not a path (`…_TOKEN_FILE=/run/x`), not an address without a password, not an ordinary word or number."""
    if value.startswith(("/", "~", "./")) or ("://" in value and "@" not in value):
        return False
    return not (value.isalpha() and value.islower()) and not value.isdigit()
