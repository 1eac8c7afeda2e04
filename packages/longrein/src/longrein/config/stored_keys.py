"""Providers' keys that `longrein login` has kept: in the system's keyring, else in a file that only
the user may read.

The file names the providers and where the key of each is. Keys are only ever given to the choice of
the model and to the redaction; no environment of a process holds them.
"""

from collections.abc import Iterator, Mapping

import msgspec

from longrein.config.settings_file import shorten_home
from longrein.config.user_environment import config_dir
from longrein.models import known_provider
from longrein.settings_schema import Provider
from longrein_context.events import SettingsError

IN_FILE = "file"
FILE_BYTES_MAX = 1 << 20


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Place where the key of a provider is kept."""

    kept: str = IN_FILE
    """`file`, or the name of a store of `workspace.system_keyring`."""
    key: str = ""
    """The key, where it is kept in the file."""


def credentials_file(environ: Mapping[str, str], home: str) -> str:
    """Return the path of the file, which may not exist."""
    return f"{config_dir(environ, home)}/credentials.json"


def read_stored(path: str) -> dict[str, StoredKey]:
    """Return provider -> where its key is; empty without a file. Raises `SettingsError` for a
    damaged one.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=dict[str, StoredKey])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SettingsError(
            f"{path} is damaged: remove it and run `longrein login` again"
        ) from None


def key_variables(provider: str, providers: Mapping[str, Provider]) -> tuple[str, ...]:
    """Return the environment variables of a provider's key, the first that is set wins.

    `providers`: those of the settings.
    """
    given, known = providers.get(provider), known_provider(provider)
    if given is not None and given.api_key_env:
        return (given.api_key_env,)
    return known.keys if known is not None else ()


class StoredKeys(Mapping[str, str]):
    """Variable -> key of the stored keys, each fetched when it is asked for."""

    def __init__(
        self, environ: Mapping[str, str], home: str, providers: Mapping[str, Provider]
    ) -> None:
        self.environ, self._known = environ, providers
        self.path = credentials_file(environ, home)
        self.file = shorten_home(self.path, home)
        self.problem = ""
        """Why no key could be read; '' for none."""
        self.preferred: set[str] = set()
        """Providers whose kept key comes before a variable, until this process ends."""
        self._fetched: dict[str, str] = {}
        self._stored: dict[str, StoredKey] = {}
        self._providers: dict[str, str] = {}
        try:
            self.reload()
        except SettingsError as error:
            self.problem = str(error)

    def reload(self) -> None:
        """Read the file again. Raises `SettingsError`."""
        self._stored = read_stored(self.path)
        self._fetched.clear()
        known = ((key_variables(one, self._known)[:1], one) for one in self._stored)
        self._providers = {name: provider for names, provider in known for name in names}

    @property
    def stored(self) -> Mapping[str, str]:
        """Provider -> `file` or the name of a store."""
        return {provider: one.kept for provider, one in self._stored.items()}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys that this process or a command could come across: those of the file, and those
        fetched.
        """
        in_file = (one.key for one in self._stored.values() if one.key)
        return tuple(dict.fromkeys((*in_file, *filter(None, self._fetched.values()))))

    def source(self, variable: str) -> str:
        """Return where the key under this variable comes from, for display."""
        kept = self._stored[self._providers[variable]].kept
        return self.file if kept == IN_FILE else f"the keyring ({kept})"

    def __getitem__(self, variable: str) -> str:
        if variable not in self._fetched:
            provider = self._providers[variable]
            one = self._stored[provider]
            self._fetched[variable] = (
                one.key if one.kept == IN_FILE else self._from_keyring(one.kept, provider)
            )
        return self._fetched[variable]

    def _from_keyring(self, kept: str, provider: str) -> str:
        from longrein.workspace.system_keyring import load_secret

        return load_secret(kept, provider, self.environ)

    def __iter__(self) -> Iterator[str]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)


# --- Which key is used ----------------------------------------------------------------------------


class KeyEnvironment(Mapping[str, str]):
    """The environment for the choice of a model, with the kept keys beside it. No process may get
    those.
    """

    def __init__(self, environ: Mapping[str, str], kept: StoredKeys) -> None:
        self._environ = environ
        self.kept = kept

    def __getitem__(self, variable: str) -> str:
        return self._environ[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


class ProviderKey(msgspec.Struct, frozen=True):
    """The key of a provider, and where else there is one."""

    provider: str
    names: tuple[str, ...]
    """Variables that were looked at."""
    variable: str = ""
    """Variable that is set; '' for none."""
    kept: str = ""
    """Place of the kept key, for display; '' for none."""
    key: str = ""
    """The key that is used; '' for none."""
    uses_kept: bool = False
    """True if that is the kept key."""

    @property
    def source(self) -> str:
        """Place of the key that is used, for display; `none` without a key."""
        if self.uses_kept:
            return self.kept
        return self.variable or "none"

    @property
    def advice(self) -> str:
        """Say what to do when the provider refuses the key; '' without a key."""
        session = f"in a session `/login {self.provider}`"
        if not self.key:
            return ""
        if self.uses_kept:
            login = f"`longrein login {self.provider}`"
            return f"it came from {self.kept}; {login} replaces it, {session} does too"
        if self.kept:
            return (
                f"it came from {self.variable}, which comes before the key kept in {self.kept}; "
                f"unset {self.variable}, or {session} offers to use the kept one"
            )
        return (
            f"it came from {self.variable}; set another there, or {session} asks for one and "
            "offers to use it"
        )


def provider_key(
    provider: str, providers: Mapping[str, Provider], environ: Mapping[str, str]
) -> ProviderKey:
    """Find the key of a provider: the variable that is set, else the kept key; a preferred kept
    key before the variable. The only place that decides this.
    """
    names = key_variables(provider, providers)
    kept = environ.kept if isinstance(environ, KeyEnvironment) else None
    variable = next((name for name in names if environ.get(name, "").strip()), "")
    under = next((name for name in names if kept is not None and name in kept), "")
    key = place = ""
    if kept is not None and under:
        place = kept.source(under)
        if not variable or provider in kept.preferred:
            key = kept[under].strip()
    used = key or environ.get(variable, "").strip()
    return ProviderKey(provider, names, variable, place, used, uses_kept=bool(key))
