"""Secrets in the keyring of the user's system: the `keyring` package, `secret-tool` (Linux) or
`security` (macOS).

Each function names the store that it used. A key never stands in the arguments of a program, which
others can see.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

SERVICE = "longrein"
LIMIT_S = 20.0
"""Longest time of a program; the user may have to unlock the keyring."""
PROGRAMS = {"darwin": "security"}
"""Platform -> its program; `secret-tool` elsewhere."""


def store_secret(account: str, secret: str, environ: Mapping[str, str]) -> str:
    """Keep `secret` in the first store that works; return the name of the store, '' where none
    works.
    """
    for name in (_PACKAGE, PROGRAMS.get(sys.platform, "secret-tool")):
        if _write(name, account, secret, environ) and load_secret(name, account, environ) == secret:
            return name
    return ""


def load_secret(name: str, account: str, environ: Mapping[str, str]) -> str:
    """Return the secret from the store `name`; '' where it has none or cannot be asked."""
    if name == _PACKAGE:
        return str(_ask_package("get_password", account) or "")
    if name == "security":
        return _run(
            ["security", "find-generic-password", "-s", SERVICE, "-a", account, "-w"], environ
        ).strip("\n\0")
    return _run(["secret-tool", "lookup", "service", SERVICE, "account", account], environ).strip(
        "\n\0"
    )


def delete_secret(name: str, account: str, environ: Mapping[str, str]) -> bool:
    """Remove the secret from the store `name`; False where it is still there."""
    if name == _PACKAGE:
        _ask_package("delete_password", account)
    elif name == "security":
        _run(["security", "delete-generic-password", "-s", SERVICE, "-a", account], environ)
    else:
        _run(["secret-tool", "clear", "service", SERVICE, "account", account], environ)
    return not load_secret(name, account, environ)


_PACKAGE = "keyring"


def _write(name: str, account: str, secret: str, environ: Mapping[str, str]) -> bool:
    if name == _PACKAGE:
        return _ask_package("set_password", account, secret) is not _UNUSABLE
    if name == "security":
        added = f"add-generic-password -U -s {SERVICE} -a {account} -w {secret}\n"
        return _run(["security", "-i"], environ, added) != _FAILED
    label = f"{SERVICE} key of {account}"
    return (
        _run(
            ["secret-tool", "store", "--label", label, "service", SERVICE, "account", account],
            environ,
            secret,
        )
        == ""
    )


_UNUSABLE = object()
_FAILED = "\0"


def _ask_package(function: str, *words: str) -> Any:
    """Call a function of the `keyring` package; `_UNUSABLE` where it is not installed or has no
    safe store here.
    """
    try:
        keyring = import_module(_PACKAGE)
        if keyring.get_keyring().priority <= 0:  # it keeps nothing, or in plain text
            return None if function == "get_password" else _UNUSABLE
        return getattr(keyring, function)(SERVICE, *words)
    except Exception:  # a package of others and its plug-ins; the next store is tried
        return None if function == "get_password" else _UNUSABLE


def _run(words: Sequence[str], environ: Mapping[str, str], stdin: str = "") -> str:
    """Run a program of an absolute folder of PATH; return its output, `_FAILED` where it failed
    or is missing.
    """
    folders = [
        folder for folder in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)
    ]
    program = shutil.which(words[0], path=os.pathsep.join(folders))
    if program is None:
        return _FAILED
    try:
        done = subprocess.run(
            [program, *words[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            env=dict(environ),
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return _FAILED
    return done.stdout if done.returncode == 0 else _FAILED
