"""Environment of commands: an allow-list, so that keys in the user's shell do not reach them.

Added are values that keep commands from waiting or colouring: no pager, no editor, no git prompt, a
dumb terminal, and `NO_COLOR=1`, because colour codes cost the model tokens.
"""

from collections.abc import Mapping, Sequence

_KEPT_WORDS = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP CI DO_NOT_TRACK SSH_AUTH_SOCK MANPATH INFOPATH
    XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_DATA_DIRS XDG_CONFIG_DIRS
    HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY http_proxy https_proxy all_proxy ftp_proxy no_proxy
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO NIX_SSL_CERT_FILE
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_EXE CONDA_PYTHON_EXE CONDA_SHLVL PYENV_ROOT PYENV_VERSION
    PYTHONPATH PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONUTF8 PYTHONIOENCODING PYTHONHASHSEED PYTHONWARNINGS
    PIP_CACHE_DIR PIPX_HOME PIPX_BIN_DIR POETRY_HOME UV_CACHE_DIR UV_PYTHON UV_PYTHON_INSTALL_DIR UV_PROJECT_ENVIRONMENT
    NVM_DIR NVM_BIN NVM_INC NODE_PATH NODE_ENV NODE_OPTIONS VOLTA_HOME FNM_DIR FNM_MULTISHELL_PATH PNPM_HOME
    BUN_INSTALL DENO_DIR DENO_INSTALL COREPACK_HOME NPM_CONFIG_PREFIX NPM_CONFIG_CACHE npm_config_cache
    CARGO_HOME CARGO_TARGET_DIR RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS RUST_BACKTRACE
    GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOTOOLCHAIN GO111MODULE
    JAVA_HOME JDK_HOME M2_HOME MAVEN_HOME GRADLE_HOME GRADLE_USER_HOME ANDROID_HOME ANDROID_SDK_ROOT SDKMAN_DIR
    KOTLIN_HOME SCALA_HOME RBENV_ROOT RBENV_VERSION GEM_HOME GEM_PATH BUNDLE_PATH RUBYLIB PHPENV_ROOT COMPOSER_HOME
    DOTNET_ROOT DOTNET_CLI_TELEMETRY_OPTOUT NUGET_PACKAGES MIX_HOME HEX_HOME GHCUP_INSTALL_BASE_PREFIX OPAMROOT
    OPAM_SWITCH_PREFIX CAML_LD_LIBRARY_PATH PERL5LIB PERL_LOCAL_LIB_ROOT JULIA_DEPOT_PATH R_LIBS_USER
    ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR HOMEBREW_PREFIX HOMEBREW_CELLAR HOMEBREW_REPOSITORY
    NIX_PATH NIX_PROFILES LOCALE_ARCHIVE CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS CMAKE_PREFIX_PATH
    PKG_CONFIG_PATH LD_LIBRARY_PATH LIBRARY_PATH CPATH SDKROOT DEVELOPER_DIR CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES
    KUBECONFIG DOCKER_HOST DOCKER_CONTEXT WSL_DISTRO_NAME WSL_INTEROP WSLENV
    LONGREIN_TEST_TAG LONGREIN_COMMAND LONGREIN_STATE_DIR
"""  # noqa: E501
KEPT = frozenset(_KEPT_WORDS.split())
"""Variables that pass: user, location, network access and tool chains. No secrets. A longrein
that a command starts keeps its sessions beside ours, so that its leftovers are listed.
"""

KEPT_BEGINNINGS = ("LC_",)

ALWAYS = {
    "AI_AGENT": "longrein",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "AWS_PAGER": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_MERGE_AUTOEDIT": "no",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
    "npm_config_update_notifier": "false",
}
"""`true` as the editor: a command that would open one goes on with the text unchanged, or fails,
but never waits.
"""

DEPTH = "LONGREIN_DEPTH"
"""Number of longreins above a process: a command may start another longrein."""

CALL_ID = "LONGREIN_CALL_ID"
"""Names the call that runs a command."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def children_environment(parent: Mapping[str, str], keep: Sequence[str]) -> dict[str, str]:
    """Build the environment of every command, without a session's mark.

    `keep` widens the list: exact names, or prefixes written `MY_*`. A name that looks like a secret
    passes only when it is written out in full.
    """
    kept = {name: value for name, value in parent.items() if _passes(name, keep)}
    kept.update((name, value) for name, value in ALWAYS.items() if name not in keep)
    kept["PATH"] = clean_path(kept.get("PATH", ""))
    kept[DEPTH] = str(nesting_depth(parent) + 1)
    return kept


def nesting_depth(environ: Mapping[str, str]) -> int:
    """Return the number of longreins above the process with this environment."""
    written = environ.get(DEPTH, "")
    return int(written) if written.isdecimal() and len(written) < 4 else 0


def _passes(name: str, keep: Sequence[str]) -> bool:
    if name in KEPT or name.startswith(KEPT_BEGINNINGS) or name in keep:
        return True
    begins = any(wish.endswith("*") and name.startswith(wish[:-1]) for wish in keep)
    return begins and not any(word in name.upper() for word in _SECRET_WORDS)


def clean_path(path: str) -> str:
    """Remove relative entries from a search path: a repository must not supply the programs."""
    return ":".join(folder for folder in path.split(":") if folder.startswith("/")) or DEFAULT_PATH
