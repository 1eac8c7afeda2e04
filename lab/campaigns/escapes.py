"""Attempts to leave the sandbox: `python -m lab.campaigns.escapes`. Each is a command that a model
might run.

Every attempt runs in a project beside files, sockets and processes that it must not reach. It has
succeeded if it prints a canary or the word ESCAPED, or if anything outside changed.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from lab.campaigns import escape_calls
from longrein.permissions import Rules
from longrein.permissions.network_hosts import Target, judge_host
from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandSpec
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.sandbox import SessionSandbox
from longrein.workspace.sandbox.rung import Rung
from tests.workspace.conftest import supervised

CANARY = "canary-0f3a77c1"
ESCAPED = "ESCAPED"
LIMIT_S = 60.0
CALL = "python3 -c 'import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); {body}'"
"""A shell line with a few calls of the C library; `l.syscall` takes the numbers of x86-64."""


LIBC = ctypes.CDLL(None)
IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
_numbers = count(1)


def _call(expression: str) -> str:
    """Return a command that prints ESCAPED if an expression of the C library gives no error."""
    return CALL.format(body=f'print("ESCAPED" if {expression} != -1 else "refused")')


WRITES: Mapping[str, str] = {
    "new file": "echo x > {outside}/new",
    "change": "echo x >> {outside}/file",
    "remove": "rm -rf {outside}/file {outside}",
    "rename": "mv {outside}/file {outside}/other",
    "mode": "chmod 777 {outside}/file",
    "owner": "chown 12345 {outside}/file",
    "times": "touch -d @1 {outside}/file",
    "symbolic link": "ln -s {outside} link; echo x > link/new; echo x >> link/file",
    "hard link": "ln {outside}/file hard && echo x >> hard",
    "own link to a file": "ln -s {outside}/file alias; echo x > alias",
    "home": "echo x >> {home}/.bashrc; echo x > {home}/.profile; rm -f {home}/.ssh/id",
    "copy through /proc": "echo x > /proc/self/root{outside}/new; echo x > "
    "/proc/1/root{outside}/new",
    "folder of the process": "echo x > /proc/self/cwd/../outside/new",
    "temporary file of another": "echo x > {outside_tmp}/new; cat {outside_tmp}/file",
    "git hook": "echo x > .git/hooks/pre-commit",
    "git setting": "git config core.fsmonitor /bin/false; echo '[core] fsmonitor=x' >> .git/config",
    "git folder exchanged": "mv .git .old; mkdir -p .git; cp -r .old/. .git; echo x >> .git/config",
    "git common folder": "mkdir -p evil; cp .git/config evil; echo ../evil > .git/commondir",
    "settings of an agent": "echo x > .claude/settings.json; rm -rf .claude; mv .claude .old",
    "missing settings": "echo x > .mcp.json; mkdir .vscode && echo x > .vscode/tasks.json; echo x "
    "> .envrc",
    "missing settings by rename": "mkdir d; echo x > d/t; mv d .husky; ln -s d .idea",
    "settings behind a link": "rm .codex; mkdir .codex; echo x > .codex/config.toml",
    "sessions": "echo x > {state}/sessions/new; rm -rf {state}/sessions",
    "kernel": "for file in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches "
    "/proc/sysrq-trigger /sys/kernel/mm/ksm/run; do (: > $file) && echo ESCAPED; done",
    "unmount": "umount .git/config .git/hooks /tmp {home}; umount -l .env; echo x >> .git/config",
    "mount again": "mount -o remount,rw,bind .git/config; echo x >> .git/config",
}
"""What may change nothing outside and no protected file."""

READS: Mapping[str, str] = {
    "plainly": "cat .env; cat secrets/key",
    "by a link": "ln -s .env alias; cat alias; ln -s secrets all; cat all/key",
    "by a hard link": "ln .env hard; cat hard; cp -l .env copy; cat copy",
    "by renaming": "mkdir sub; mv .env sub/env; mv secrets other; cat sub/env other/key",
    "by /proc": "cat /proc/self/root$PWD/.env /proc/1/root$PWD/.env /proc/*/cwd/.env",
    "with another mode": "chmod 644 .env; chmod -R 755 secrets; cat .env secrets/key",
    "by archive": "tar cf - . | cat; cp -r . /tmp/all; cat /tmp/all/.env; rsync -a . /tmp/b; grep "
    "-r canary . /tmp",
    "by git": "git add -f .env; git stash -u; git show :.env; git diff --no-index /dev/null .env",
    "by python": "python3 -c 'print(open(\".env\").read())'",
    "home": "cat {home}/.ssh/id {home}/.aws/credentials; find {home} -type f | xargs cat",
    "sessions": "cat {state}/sessions/log; find {state} | xargs cat; cat {session}/tasks/log",
    "environment": "cat /proc/*/environ; ps eww; strings /proc/*/environ; env",
    "command lines": "cat /proc/*/cmdline",
    "memory": "cat /proc/{pid}/mem /proc/{pid}/maps /proc/1/environ",
    "by handle": CALL.format(
        body='b = ctypes.create_string_buffer(b"\\x80\\0\\0\\0" + b"\\0" * 200); m = '
        'ctypes.c_int(); f = l.open(b"/", 0); print("ESCAPED" if l.name_to_handle_at(f, b"etc", b, '
        'ctypes.byref(m), 0) == 0 and l.open_by_handle_at(f, b, 0) != -1 else "refused")'
    ),
}
"""What may print no canary."""

PROCESSES: Mapping[str, str] = {
    "signal": "kill -9 {pid}; kill -9 -1; pkill -9 sleep; killall -9 sleep",
    "trace": _call("l.ptrace(16, {pid}, 0, 0)"),
    "trace a child": _call("l.ptrace(0, 0, 0, 0)"),
    "read memory": _call("l.process_vm_readv({pid}, None, 0, None, 0, 0)"),
    "open by pid": _call("l.syscall(434, {pid}, 0)"),
    "priority": _call("l.setpriority(0, {pid}, 19)"),
    "limits": _call("l.prlimit({pid}, 7, None, ctypes.create_string_buffer(16))"),
    "list of shared memory": "ipcs -m | grep 0x && echo ESCAPED",
    "shared memory": CALL.format(
        body="l.shmat.restype = ctypes.c_ssize_t; "
        'print("ESCAPED" if l.shmat({memory}, None, 0) != -1 else "refused")'
    ),
    "removal of shared memory": _call("l.shmctl({memory}, 0, None)"),
    "semaphores": _call("l.semctl({semaphores}, 0, 0)"),
    "message queue": _call('l.msgsnd({messages}, b"\\1" + b"\\0" * 8, 1, 0)'),
    "removal of a message queue": _call("l.msgctl({messages}, 0, None)"),
}
"""What may reach no process outside."""

SOCKETS: Mapping[str, str] = {
    "TCP": "exec 3<>/dev/tcp/127.0.0.1/{tcp} && echo ESCAPED",
    "TCP, IPv6": "exec 3<>/dev/tcp/::1/{tcp} && echo ESCAPED",
    "TCP to another machine": "timeout 3 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' && echo ESCAPED",
    "UDP": "echo ESCAPED-{canary} > /dev/udp/127.0.0.1/{udp}",
    "name": "getent hosts example.com && echo ESCAPED",
    "abstract socket": 'python3 -c \'import socket; socket.socket(1).connect("\\0{abstract}"); '
    'print("ESCAPED")\'',
    "supervisor": "python3 -c 'import socket; "
    'socket.socket(1).connect("{session}/tasks/v6.sock"); print("ESCAPED")\'',
    "raw": "python3 -c 'import socket; socket.socket(2, 3, 1); print(\"ESCAPED\")'",
    "packet": "python3 -c 'import socket; socket.socket(17, 3); print(\"ESCAPED\")'",
    "vsock": "python3 -c 'import socket; socket.socket(40, 1); print(\"ESCAPED\")'",
    "kernel crypto": "python3 -c 'import socket; socket.socket(38, 5); print(\"ESCAPED\")'",
}
"""What may reach no listener outside."""

CALLS: Mapping[str, str] = {
    "unshare": "unshare -Ur true && echo ESCAPED; unshare -m true && echo ESCAPED; unshare -n "
    "true && echo ESCAPED",
    "clone with a namespace": _call("l.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)"),
    "clone3": _call("l.syscall(435, 0, 0)"),
    "setns": _call('l.setns(l.open(b"/proc/1/ns/user", 0), 0)'),
    "mount": _call('l.mount(b"none", b"/mnt", b"tmpfs", 0, None)'),
    "bind mount": _call('l.mount(b"/", b"/mnt", None, 4096, None)'),
    "new mount calls": _call('l.syscall(430, b"tmpfs", 0)'),
    "open_tree": _call('l.syscall(428, -100, b"/", 1)'),
    "pivot_root": _call('l.syscall(155, b"/", b"/")'),
    "chroot": _call('l.chroot(b"/")'),
    "device": "mknod disk b 8 0 && echo ESCAPED; mknod mem c 1 1 && echo ESCAPED",
    "keyring": _call("l.syscall(250, 0, -3, 0, 0, 0)"),
    "add a key": _call('l.syscall(248, b"user", b"k", b"v", 1, -3)'),
    "io_uring": _call("l.syscall(425, 8, ctypes.create_string_buffer(120))"),
    "bpf": _call("l.syscall(321, 0, ctypes.create_string_buffer(128), 128)"),
    "perf events": _call("l.syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)"),
    "userfaultfd": _call("l.syscall(323, 0)"),
    "modules": _call('l.syscall(175, b"", 0, b"")'),
    "reboot": _call("l.syscall(169, 0xfee1dead, 672274793, 0, 0)"),
    "host name": _call('l.sethostname(b"x", 1)'),
    "clock": "date -s @0 && echo ESCAPED",
    "x32 calls": _call("l.syscall(0x40000000 + 101, 0, 0, 0, 0)"),
    "typing into a terminal": "python3 -c 'import fcntl, os, pty; a, b = pty.openpty(); "
    'fcntl.ioctl(b, 0x5412, b"x"); print("ESCAPED")\'',
    "user id": "setpriv --reuid 1 true && echo ESCAPED; su nobody -s /bin/true && echo ESCAPED",
    "capabilities": "grep -E 'Cap(Eff|Prm|Bnd):.*[1-9a-f]' /proc/self/status && echo ESCAPED",
}
"""What the filter or missing rights must refuse."""

SYSTEM_CALLS: Mapping[str, str] = {"all": "python3 -I escape_calls.py '{facts}'"}
"""What a program tries by itself, some 120 attempts: see `escape_calls`."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "write": WRITES,
    "read": READS,
    "process": PROCESSES,
    "socket": SOCKETS,
    "call": CALLS,
    "system calls": SYSTEM_CALLS,
}
ATTEMPTS: Mapping[str, str] = {
    f"{group}: {name}": line for group, one in GROUPS.items() for name, line in one.items()
}

_CONNECT = """python3 -c '
import socket
def ask(made, line):
    made.settimeout(20)
    made.sendall(line.encode() + b"\\r\\nHost: good.example\\r\\n\\r\\n")
    answer = made.recv(100)
    print("ESCAPED" if b" 200 " in answer else answer)
for target in {targets!r}:
    for line in ("CONNECT " + target + " HTTP/1.1", "GET http://" + target + "/ HTTP/1.1"):
        ask(socket.create_connection(("127.0.0.1", 3128)), line)
        made = socket.socket(socket.AF_UNIX); made.connect("/run/longrein-proxy"); ask(made, line)
'"""


def _connect(*targets: str) -> str:
    return _CONNECT.replace("{targets!r}", json.dumps(targets))


PROXY_ATTEMPTS: Mapping[str, str] = {
    "proxy: loopback": _connect(
        "127.0.0.1:{tcp}", "localhost:{tcp}", "[::1]:{tcp}", "[::ffff:127.0.0.1]:{tcp}"
    ),
    "proxy: odd numbers": _connect(
        "0.0.0.0:{tcp}", "2130706433:{tcp}", "0x7f.1:{tcp}", "127.1:{tcp}", "[::]:{tcp}"
    ),
    "proxy: name of this machine": _connect(
        f"{socket.gethostname()}:{{tcp}}", "x.localhost:{tcp}", "localhost.:{tcp}"
    ),
    "proxy: inside": _connect(
        "10.0.0.1:80", "169.254.169.254:80", "192.168.0.1:443", "[fd00::1]:80"
    ),
    "proxy: two names": _connect(
        "good.example@127.0.0.1:{tcp}", "127.0.0.1:{tcp}#good.example", "127.0.0.1:{tcp}?x"
    ),
    "proxy: its socket": "rm -f /run/longrein-proxy; mv /run/longrein-proxy /tmp; ls "
    "{session}/sandbox",
}
"""Attempts where `sandbox.network` names hosts; a rule allows all public ones."""


class Surroundings:
    """A project in the sandbox, and what lies around it."""

    def __init__(self, base: Path) -> None:
        self.base, self.root = base, base / "project"
        self.outside, self.home, self.state = base / "outside", base / "home", base / "state"
        self.session = self.state / "sessions" / "s1"
        for folder in (
            self.root / "secrets",
            self.root / ".claude",
            self.outside,
            self.session / "tasks",
        ):
            folder.mkdir(parents=True)
        for name, text in (
            (self.outside / "file", "mine"),
            (self.home / ".bashrc", "mine"),
            (self.home / ".ssh" / "id", CANARY),
            (self.home / ".aws" / "credentials", CANARY),
            (self.state / "sessions" / "log", CANARY),
            (self.session / "tasks" / "log", CANARY),
            (self.root / ".env", CANARY),
            (self.root / "secrets" / "key", CANARY),
            (self.root / "private" / "secret", CANARY),
            (self.home / "secret", CANARY),
            (self.state / "secret", CANARY),
            (self.root / "escape_calls.py", Path(escape_calls.__file__).read_text()),
            (self.root / ".claude" / "settings.json", "{}"),
        ):
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_text(text)
        (self.root / "agent").mkdir()
        (self.outside / "empty").mkdir()
        (self.root / ".codex").symlink_to("agent")
        subprocess.run(
            ["git", "init", "-q", str(self.root)], check=True, env={"PATH": os.environ["PATH"]}
        )
        self.outside_tmp = Path(tempfile.mkdtemp(dir="/tmp"))
        (self.outside_tmp / "file").write_text(CANARY)
        self.process = subprocess.Popen(["sleep", "600"], env={"KEY": CANARY})
        self.tcp, self.udp, self.abstract = (
            socket.create_server(("127.0.0.1", 0)),
            socket.socket(type=socket.SOCK_DGRAM),
            socket.socket(socket.AF_UNIX),
        )
        self.udp.bind(self.tcp.getsockname())
        self.udp.setblocking(False)
        self.abstract_name = f"escape-{os.getpid()}-{next(_numbers)}"
        self.abstract.bind("\0" + self.abstract_name)
        self.abstract.listen()
        self.supervisor = socket.socket(socket.AF_UNIX)
        folder = os.open(self.session / "tasks", os.O_RDONLY)
        self.supervisor.bind(f"/proc/self/fd/{folder}/v6.sock")  # the path itself may be too long
        os.close(folder)
        self.supervisor.listen()
        self.shared = {
            "memory": LIBC.shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0o600),
            "semaphores": LIBC.semget(IPC_PRIVATE, 1, IPC_CREAT | 0o600),
            "messages": LIBC.msgget(IPC_PRIVATE, IPC_CREAT | 0o600),
        }

    def words(self) -> dict[str, str]:
        """Return what the attempts name."""
        port, path = self.tcp.getsockname()[1], f"{self.session}/tasks/v4.sock"
        facts = {
            "outside": str(self.outside), "secret": CANARY, "victim": self.process.pid,
            "group": self.process.pid,
            "home": str(self.home), "store": str(self.state), "port": port, "socket": path,
            "abstract": self.abstract_name,
        }  # fmt: skip
        return {
            "facts": json.dumps(facts),
            "outside": str(self.outside),
            "outside_tmp": str(self.outside_tmp),
            "home": str(self.home),
            "state": str(self.state),
            "session": str(self.session),
            "pid": str(self.process.pid),
            "tcp": str(self.tcp.getsockname()[1]),
            "udp": str(self.udp.getsockname()[1]),
            "abstract": self.abstract_name,
            "canary": CANARY,
            **{name: str(number) for name, number in self.shared.items()},
        }

    def changes(self, before: Mapping[str, object]) -> list[str]:
        """Return what an attempt has reached outside."""
        now = self.picture()
        found = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if self.process.poll() is not None:
            found.append("the process outside was ended")
        with contextlib.suppress(BlockingIOError):
            found.append(f"a datagram came: {self.udp.recv(100)!r}")
        return found

    def picture(self) -> dict[str, object]:
        """Return all that must stay as it is: files outside, and protected ones of the project."""
        found: dict[str, object] = {}
        guarded = [
            self.root / ".claude",
            *(self.root / ".git" / name for name in ("hooks", "config", "commondir")),
        ]
        guarded += [
            self.root / name
            for name in (".mcp.json", ".vscode", ".envrc", ".husky", ".idea", ".codex")
        ]
        outside = (
            self.outside,
            self.outside_tmp,
            self.home,
            self.state / "sessions" / "log",
            self.session / "tasks",
        )
        for top in (*outside, *guarded):
            for path in (
                top,
                *(sorted(top.rglob("*")) if top.is_dir() and not top.is_symlink() else ()),
            ):
                if os.path.lexists(path):
                    at = path.lstat()
                    text = path.read_bytes() if path.is_file() else b""
                    link = os.readlink(path) if path.is_symlink() else ""
                    found[str(path)] = (
                        at.st_mode,
                        at.st_uid,
                        int(at.st_mtime) == 1,
                        at.st_nlink,
                        text,
                        link,
                    )
        return found

    def close(self) -> None:
        """Remove everything."""
        self.process.kill()
        self.process.wait()
        for one in (self.tcp, self.udp, self.abstract, self.supervisor):
            one.close()
        LIBC.shmctl(self.shared["memory"], IPC_RMID, None)
        LIBC.semctl(self.shared["semaphores"], 0, IPC_RMID)
        LIBC.msgctl(self.shared["messages"], IPC_RMID, None)
        shutil.rmtree(self.outside_tmp, ignore_errors=True)


def open_sandbox(
    around: Surroundings,
    mode: str = "auto",
    rung: str = "",
    network: Sequence[str] = (),
    image: str = "",
) -> SessionSandbox:
    """Open the sandbox of the project; `rung` replaces the one that would be chosen."""
    sandbox = SessionSandbox(
        SandboxOptions(mode, network=tuple(network), image=image),
        folder=str(around.session),
        home=str(around.home),
        state_dir=str(around.state),
        environ=os.environ,
        roots=[str(around.root)],
    )
    if rung and sandbox.rung.name != rung:
        sandbox.rung = Rung(rung, "chosen by the test")
    sandbox.confine([str(around.root)], str(around.root), ())  # makes folders in home
    return sandbox


async def attempt(around: Surroundings, sandbox: SessionSandbox, line: str) -> list[str]:
    """Run one attempt; return what it has reached, nothing if it was stopped."""
    before, output, root = around.picture(), CollectingSink(), str(around.root)
    for name, word in around.words().items():
        line = line.replace(f"{{{name}}}", word)
    sandbox.begin([root], others_run=False)
    hidden = [f"{root}/.env", f"{root}/secrets", f"{root}/private"]

    async def decide(target: Target) -> str:
        verdict = judge_host(target, sandbox.entries, Rules(("Network",)), "dontAsk")
        return "" if verdict.kind == "allow" else verdict.reason

    proxy = sandbox.open_proxy("s1", decide, lambda _reason: None) if sandbox.entries else ""
    confinement = sandbox.confine([root], root, hidden, proxy_socket=proxy)
    environment = {"PATH": os.environ["PATH"], "HOME": str(around.home), "GIT_CONFIG_COUNT": "0"}
    spec = CommandSpec(line, root, environment, confinement)
    spool = around.base.with_name(f"{around.base.name}-supervisor")
    spawner = supervised(spool, environment, [root])
    assert await spawner.answered()
    for _ in range(2):  # as in a session: its mounts are those of commands before it
        before_it = msgspec.structs.replace(spec, command="true")
        await spawner.run(before_it, sink=CollectingSink(), timeout_s=LIMIT_S, output_bytes_max=1)
    spawner.prepare(spec)  # and bubblewrap's sandbox is made before its command
    await spawner.run(spec, sink=output, timeout_s=LIMIT_S, output_bytes_max=1 << 22)
    await spawner.drain()
    await sandbox.close()
    sandbox.missing.end()
    printed = output.data.decode("utf-8", "replace")
    assert not printed.startswith("bwrap: "), f"the attempt did not begin: {printed}"
    known = SEEN_IN_LANDLOCK if sandbox.rung.name == "landlock" else ()
    said = [
        text
        for text in printed.splitlines()
        if ESCAPED in text and text.partition(": ")[2] not in known
    ]
    said += [f"it printed {CANARY}"] if CANARY in printed else []
    return [*said, *around.changes(before)]


SEEN_IN_LANDLOCK = ("list the hidden folder",)
"""System calls that Landlock cannot refuse: names in a folder of a readable one;
`landlock.unenforced` says so.
"""
OPEN_IN_LANDLOCK = (
    "write: mode",
    "write: times",
    "read: command lines",
    "process: open by pid",
    "process: list of shared memory",
)
"""What Landlock cannot refuse: attributes of the user's own files, `ps`, `ipcs`, and an idle handle
of a process.
"""


async def run_all(
    base: Path,
    names: Sequence[str] = tuple(ATTEMPTS),
    rung: str = "",
    network: Sequence[str] = (),
    image: str = "",
) -> dict[str, list[str]]:
    """Run attempts one after the other; return those that reached something."""
    lines = {**ATTEMPTS, **PROXY_ATTEMPTS}
    reached = {}
    for number, name in enumerate(names):
        around = Surroundings(base / str(number))
        try:
            sandbox = open_sandbox(around, rung=rung, network=network, image=image)
            if found := await attempt(around, sandbox, lines[name]):
                reached[name] = found
        finally:
            around.close()
    return reached


def main(words: Sequence[str] = ()) -> int:
    """Run all attempts, print one line, return 1 if one succeeded.

    `landlock` in the words chooses that rung, `proxy` a network of single hosts, a path an image.
    """
    open_here = list[str]()
    network = ("good.example",) if "proxy" in words else ()
    image = next((word for word in words if word.startswith("/")), "")
    names = (*ATTEMPTS, *(PROXY_ATTEMPTS if network else ()))
    base = Path(tempfile.mkdtemp(prefix="escapes", dir=os.environ.get("ESCAPES_DIR", "/var/tmp")))
    try:
        probe = SessionSandbox(
            SandboxOptions(),
            folder=str(base),
            home=str(base),
            state_dir=str(base),
            environ=os.environ,
            roots=[],
        )
        rung = Rung("landlock", "") if "landlock" in words else probe.rung
        runs = run_all(base, names, rung.name, network, image)
        reached = asyncio.run(runs) if rung.confines else {}
        open_here = [
            name for name in reached if rung.name == "landlock" and name in OPEN_IN_LANDLOCK
        ]
        reached = {name: found for name, found in reached.items() if name not in open_here}
    finally:
        shutil.rmtree(base, ignore_errors=True)
    for name, found in reached.items():
        print(f"  {name}: {'; '.join(found)}"[:300])
    what = (
        f"{rung.name}{' with the proxy' if network else ''} as uid {os.getuid()}"
        if rung.confines
        else f"no sandbox: {rung.reason}"
    )
    known = f"; known to be open: {', '.join(open_here)}" if open_here else ""
    print(f"escape battery ({what}): {len(reached)} of {len(names)} succeeded{known}")
    return 1 if reached or not rung.confines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
