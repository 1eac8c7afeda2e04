"""Profile for the sandbox of macOS, compared as text: it can be tried on macOS only."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.sandbox.seatbelt import PROGRAM, seatbelt_profile, seatbelt_words

POLICY = SandboxPolicy(
    roots=("/Users/ada/project",),
    home="/Users/ada",
    home_visible=("/Users/ada/.gitconfig",),
    home_writable=("/Users/ada/.cache",),
    read_only=("/Users/ada/project/.git/hooks", "/Users/ada/project/.git/config"),
    hidden=("/Users/ada/project/.env", "/Users/ada/.state"),
    private_tmp="/Users/ada/.state/s1/tmp",
)
NETWORK_RULES = ("(allow network-outbound", "(allow network-bind")


def last_lines(profile: str) -> list[str]:
    return [line for line in profile.splitlines() if line.startswith(NETWORK_RULES)]


def test_profile_of_a_policy() -> None:
    assert seatbelt_profile(POLICY) == snapshot("""\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))
(allow file-read-metadata)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.logd")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SystemConfiguration.configd"))
(allow file-read* (subpath "/"))
(deny file-read-data
  (subpath "/Users")
  (subpath "/Volumes")
  (subpath "/private/tmp")
  (subpath "/private/var/tmp")
  (subpath "/private/var/folders")
  (subpath "/private/var/run")
  (subpath "/Users/ada"))
(allow file-read*
  (subpath "/Users/ada/.gitconfig")
  (subpath "/Users/ada/.cache")
  (subpath "/Users/ada/project")
  (subpath "/Users/ada/.state/s1/tmp"))
(allow file-read* file-write-data file-ioctl
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/random")
  (literal "/dev/urandom")
  (literal "/dev/tty")
  (literal "/dev/dtracehelper"))
(allow file-write*
  (subpath "/Users/ada/.cache")
  (subpath "/Users/ada/project")
  (subpath "/Users/ada/.state/s1/tmp"))
(deny file-write*
  (subpath "/Users/ada/project/.git/hooks")
  (subpath "/Users/ada/project/.git/config"))
(deny file-write-unlink
  (literal "/Users/ada/project")
  (literal "/Users/ada/project/.git"))
(deny file-read* file-write*
  (subpath "/Users/ada/project/.env")
  (subpath "/Users/ada/.state"))
(allow file-read* file-write*
  (subpath "/Users/ada/.state/s1/tmp"))
""")


@pytest.mark.parametrize(
    ("policy", "port", "lines"),
    [
        (SandboxPolicy(("/p",)), 0, []),
        (SandboxPolicy(("/p",)), 8123, ['(allow network-outbound (remote ip "localhost:8123"))']),
        (
            SandboxPolicy(("/p",), network=True),
            0,
            [
                '(allow network-outbound (remote ip) (literal "/private/var/run/mDNSResponder"))',
                "(allow network-bind network-inbound (local ip))",
            ],
        ),
    ],
)
def test_network_is_off_or_leads_to_the_proxy(
    policy: SandboxPolicy, port: int, lines: list[str]
) -> None:
    assert last_lines(seatbelt_profile(policy, port)) == lines


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/a b", '(subpath "/a b")'),
        ('/a"b', '(subpath "/a\\"b")'),
        ("/a\\b", '(subpath "/a\\\\b")'),
        ('/a\\")(allow default)("', '(subpath "/a\\\\\\")(allow default)(\\"")'),
        ("/a\nb", '(subpath "/a\\nb")'),
        ("/ü/日本", '(subpath "/ü/日本")'),
        ("/a)(b;c#d", '(subpath "/a)(b;c#d")'),
    ],
)
def test_odd_paths_stay_one_string(path: str, written: str) -> None:
    profile = seatbelt_profile(SandboxPolicy((path,)))
    assert f"(allow file-write*\n  {written})\n" in profile


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        seatbelt_profile(SandboxPolicy(("/a\0b",)))


def test_no_rule_without_a_filter_is_written() -> None:
    lines = seatbelt_profile(SandboxPolicy(())).splitlines()
    assert not [
        line
        for line in lines
        if line.startswith(("(allow file-write*", "(deny file-write", "(deny file-read*"))
    ]


@pytest.mark.skipif(
    sys.platform != "darwin" or not shutil.which(PROGRAM), reason="Seatbelt exists on macOS only"
)
def test_seatbelt_takes_the_profile(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    words = [
        *seatbelt_words(SandboxPolicy((str(root),))),
        "/bin/sh",
        "-c",
        f"echo x > {root}/in; echo x > {root}.out",
    ]
    subprocess.run(words, check=False, capture_output=True)
    assert (root / "in").exists()
    assert not Path(f"{root}.out").exists()
