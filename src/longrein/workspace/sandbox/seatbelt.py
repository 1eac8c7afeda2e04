"""Profile of Seatbelt, the sandbox of macOS, for `sandbox-exec -p PROFILE command …`.

The last rule that matches decides, so each block restricts or widens those above it.
"""

from collections.abc import Iterable, Sequence

from longrein.workspace.sandbox.policy import SandboxPolicy

PROGRAM = "/usr/bin/sandbox-exec"
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/dtracehelper",
)
_SERVICES = (
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
    "com.apple.system.notification_center",
    "com.apple.system.logger",
    "com.apple.logd",
    "com.apple.trustd.agent",
    "com.apple.SystemConfiguration.configd",
)
"""Services of the system that ordinary programs look up; none of them acts for the command."""
_CLOSED = (
    "/Users",
    "/Volumes",
    "/private/tmp",
    "/private/var/tmp",
    "/private/var/folders",
    "/private/var/run",
)
"""Folders that commands cannot read, apart from roots and visible folders in them."""
_RESOLVER = "/private/var/run/mDNSResponder"
"""Socket that looks names up."""
_FIRST = (
    "(version 1)",
    "(deny default)",
    "(allow process-exec process-fork)",
    "(allow process-info* (target same-sandbox))",
    "(allow signal (target same-sandbox))",
    "(allow sysctl-read)",
    "(allow ipc-posix-sem)",
    "(allow pseudo-tty)",
    '(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))',
    "(allow file-read-metadata)",
)


def seatbelt_profile(policy: SandboxPolicy, proxy_port: int = 0) -> str:
    """Return the profile for a policy; `proxy_port` is the loopback port of the proxy, 0 for none.

    Raises ValueError for a path with a NUL, which no path has.
    """
    temporary = (policy.private_tmp,) if policy.private_tmp else ()
    writable = (*policy.home_writable, *policy.roots, *temporary)
    home = (policy.home,) if policy.home else ()
    lines = [
        *_FIRST,
        _rule("allow mach-lookup", (f"(global-name {_quoted(name)})" for name in _SERVICES)),
        '(allow file-read* (subpath "/"))',
        _rule("deny file-read-data", _below((*_CLOSED, *home))),
        _rule("allow file-read*", _below((*policy.home_visible, *writable))),
        _rule(
            "allow file-read* file-write-data file-ioctl",
            (f"(literal {_quoted(path)})" for path in _DEVICES),
        ),
        _rule("allow file-write*", _below(writable)),
        _rule("deny file-write*", _below(policy.read_only)),
        _rule("deny file-write-unlink", _parents((*policy.read_only, *policy.hidden), writable)),
        _rule("deny file-read* file-write*", _below(policy.hidden)),
        _rule(
            "allow file-read* file-write*",
            _below([one for one in writable if _is_below(one, policy.hidden)]),
        ),
        *_network(policy, proxy_port),
    ]
    return "\n".join(line for line in lines if line) + "\n"


def seatbelt_words(policy: SandboxPolicy, proxy_port: int = 0) -> list[str]:
    """Return the command line in front of a command."""
    return [PROGRAM, "-p", seatbelt_profile(policy, proxy_port)]


def _network(policy: SandboxPolicy, proxy_port: int) -> list[str]:
    if policy.network:
        return [
            f"(allow network-outbound (remote ip) (literal {_quoted(_RESOLVER)}))",
            "(allow network-bind network-inbound (local ip))",
        ]
    if proxy_port:
        return [f'(allow network-outbound (remote ip "localhost:{proxy_port}"))']
    return []


def _rule(what: str, filters: Iterable[str]) -> str:
    """Return one rule; '' without filters, because a rule without any covers everything."""
    lines = "".join(f"\n  {one}" for one in filters)
    return f"({what}{lines})" if lines else ""


def _below(paths: Sequence[str]) -> list[str]:
    return [f"(subpath {_quoted(path)})" for path in dict.fromkeys(paths)]


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _parents(paths: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return filters for the folders between roots and protected paths: renaming one would lift
    the protection.
    """
    found = dict[str, None]()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and (folder in roots or _is_below(folder, roots)):
            found[folder] = None
            folder = folder.rpartition("/")[0]
    return [f"(literal {_quoted(folder)})" for folder in sorted(found)]


def _quoted(text: str) -> str:
    """Return a string of the profile's language. Raises ValueError for a NUL."""
    if "\0" in text:
        raise ValueError("a path with a NUL")
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'
