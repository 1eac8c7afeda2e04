"""Keep and remove keys of providers, for `longrein login` and `/login`."""

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from longrein.atomic_file import replace_file
from longrein.config.stored_keys import (
    IN_FILE,
    StoredKey,
    StoredKeys,
    key_variables,
    read_stored,
)
from longrein.models import known_provider, known_providers
from longrein.settings_schema import Provider
from longrein_context.events import SettingsError, UsageError

KEY_CHARS_MAX = 4_096


def write_stored(path: str, stored: Mapping[str, StoredKey]) -> None:
    """Replace the file, with mode 0600; remove it where nothing is stored. Raises
    `SettingsError`.
    """
    try:
        if not stored:
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(
            path, [msgspec.json.format(msgspec.json.encode(stored), indent=2), b"\n"], durable=True
        )
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None


def key_variable(provider: str, providers: Mapping[str, Provider]) -> str:
    """Return the environment variable under which a provider's key is kept. Raises `UsageError`
    for a provider that needs or has none.
    """
    given, known = providers.get(provider), known_provider(provider)
    if names := key_variables(provider, providers):
        return names[0]
    if known is not None:
        raise UsageError(f"{provider} is a server on this machine, which needs no key")
    if given is not None:
        raise UsageError(
            f"add api_key_env under [providers.{provider}]: the key is kept under that name"
        )
    every = ", ".join(one.name for one in known_providers() if one.keys)
    raise UsageError(
        f"no provider {provider!r}; known are {every}, and those of [providers.NAME] in your "
        "settings"
    )


def checked_key(text: str) -> str:
    """Return a key as it was entered, without blanks around it. Raises `UsageError` for what
    cannot be one.
    """
    key = text.strip()
    if not key:
        raise UsageError("no key was entered, nothing is changed")
    if not (key.isascii() and key.isprintable()) or " " in key or len(key) > KEY_CHARS_MAX:
        raise UsageError(
            "that is no key: it holds blanks or other characters that keys do not have; nothing "
            "is changed"
        )
    return key


def keep_key(keys: StoredKeys, provider: str, providers: Mapping[str, Provider], text: str) -> str:
    """Keep the key of a provider; return where. Raises `UsageError` and `SettingsError`."""
    from longrein.workspace.system_keyring import store_secret

    variable, key = key_variable(provider, providers), checked_key(text)
    stored = read_stored(keys.path)
    kept = store_secret(provider, key, keys.environ)
    stored[provider] = StoredKey(kept) if kept else StoredKey(IN_FILE, key)
    write_stored(keys.path, stored)
    keys.reload()
    return keys.source(variable)


def remove_key(keys: StoredKeys, provider: str) -> str:
    """Remove the key of a provider; return where it was. Raises `UsageError` and
    `SettingsError`.
    """
    from longrein.workspace.system_keyring import delete_secret

    stored = read_stored(keys.path)
    if provider not in stored:
        known = ", ".join(stored) or "there is none"
        raise UsageError(f"no key of {provider!r} is kept; kept are: {known}")
    one = stored.pop(provider)
    if one.kept != IN_FILE and not delete_secret(one.kept, provider, keys.environ):
        raise SettingsError(f"{one.kept} did not remove the key of {provider}: remove it there")
    write_stored(keys.path, stored)
    keys.reload()
    keys.preferred.discard(provider)
    return keys.file if one.kept == IN_FILE else f"the keyring ({one.kept})"
