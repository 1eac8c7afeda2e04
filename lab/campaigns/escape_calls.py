"""Attempts to leave a sandbox. The file is also the program that makes them inside: standard
library only.

`attempts` lists all by name; one that succeeds returns a true value. `Outside` is what they try to
reach: it looks afterwards whether anything has changed.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Attempt = tuple[str, Callable[[], object]]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NUMBERS = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "mount": 165, "umount2": 166, "pivot_root": 155,
        "add_key": 248,
        "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "io_uring_setup": 425, "setns": 308, "open_by_handle_at": 304, "unshare": 272, "clone": 56,
        "clone3": 435,
        "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "tgkill": 234,
        "rt_sigqueueinfo": 129,
        "prlimit64": 302, "syslog": 103, "kcmp": 312, "fsopen": 430, "open_tree": 428,
        "name_to_handle_at": 303,
        "copy_file_range": 326, "sethostname": 170, "swapon": 167, "init_module": 175,
        "personality": 135,
        "shmget": 29, "mq_open": 240, "memfd_secret": 447,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "mount": 40, "umount2": 39, "pivot_root": 41,
        "add_key": 217,
        "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
        "io_uring_setup": 425, "setns": 268, "open_by_handle_at": 265, "unshare": 97, "clone": 220,
        "clone3": 435,
        "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "tgkill": 131,
        "rt_sigqueueinfo": 138,
        "prlimit64": 261, "syslog": 116, "kcmp": 272, "fsopen": 430, "open_tree": 428,
        "name_to_handle_at": 264,
        "copy_file_range": 285, "sethostname": 161, "swapon": 224, "init_module": 105,
        "personality": 92,
        "shmget": 194, "mq_open": 180, "memfd_secret": 447,
    },
}[platform.machine()]  # fmt: skip


def call(name: str, *arguments: object) -> int:
    """Make a system call; raises OSError."""
    result = libc.syscall(
        NUMBERS[name], *(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


# --- Inside ---------------------------------------------------------------------------------------


def write_attempts(outside: str) -> Iterator[Attempt]:
    """Change files outside: `file` and the empty folder `empty` exist in `outside`."""
    file, new = f"{outside}/file", f"{outside}/new"
    Path("inside").write_text("inside")
    with suppress(OSError):
        os.symlink(outside, "link")

    def written(path: str, flags: int) -> Callable[[], object]:
        def attempt() -> int:
            descriptor = os.open(path, flags | os.O_WRONLY, 0o600)
            return os.write(descriptor, b"escaped")

        return attempt

    for name, flags in (("append", os.O_APPEND), ("truncate", os.O_TRUNC), ("overwrite", 0)):
        yield f"{name} a file", written(file, flags)
        yield f"{name} through a symbolic link", written("link/file", flags)
        yield f"{name} through /proc/self/root", written(f"/proc/self/root{file}", flags)
    yield "create a file", written(new, os.O_CREAT)
    yield "create a file through a symbolic link", written("link/new", os.O_CREAT)
    yield "create a file by ..", written(os.path.relpath(new), os.O_CREAT)
    yield "create a nameless file", written(outside, os.O_TMPFILE)
    yield "truncate by path", lambda: os.truncate(file, 0) or True
    yield "rename out", lambda: os.rename("inside", new) or True
    yield "rename in", lambda: os.rename(file, "stolen") or True
    yield "hard link out", lambda: os.link("inside", new) or True
    yield "hard link in, then write", lambda: os.link(file, "linked") or written("linked", 0)()
    yield "remove a file", lambda: os.unlink(file) or True
    yield "remove a folder", lambda: os.rmdir(f"{outside}/empty") or True
    yield "make a folder", lambda: os.mkdir(new) or True
    yield "make a symbolic link", lambda: os.symlink("x", new) or True
    yield "make a FIFO", lambda: os.mkfifo(new) or True

    def descriptor_of_path() -> object:
        return os.open("file", os.O_WRONLY, dir_fd=os.open(outside, os.O_PATH))

    yield "open by a descriptor of the folder", descriptor_of_path
    yield (
        "reopen a path descriptor",
        lambda: os.open(f"/proc/self/fd/{os.open(file, os.O_PATH)}", os.O_WRONLY),
    )
    for number, device in enumerate(((8, 0), (1, 1), (1, 5))):
        name = f"device{number}"

        def made(name: str = name, device: tuple[int, int] = device) -> object:
            os.mknod(
                name, 0o600 | 0o020000 | (0o040000 if device[0] == 8 else 0), os.makedev(*device)
            )
            return os.open(name, os.O_RDONLY) >= 0

        yield f"make device {device}", made
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/sys/power/state",
    ):
        yield f"open {path}", lambda path=path: os.open(path, os.O_WRONLY) >= 0


def read_attempts(facts: dict[str, Any]) -> Iterator[Attempt]:
    """Read the hidden file `.env` in the project, a file in the home folder, and memory of a
    process outside.
    """
    secret, pid = facts["secret"].encode(), facts["victim"]

    def reads(path: str) -> Callable[[], object]:
        return lambda: secret in Path(path).read_bytes()

    def renamed() -> object:
        os.rename(".env", "moved")
        try:
            return reads("moved")()
        finally:
            os.rename("moved", ".env")

    def renamed_elsewhere() -> object:
        os.makedirs("folder", exist_ok=True)
        os.rename(".env", "folder/moved")
        try:
            return reads("folder/moved")()
        finally:
            os.rename("folder/moved", ".env")

    def linked() -> object:
        os.makedirs("folder", exist_ok=True)
        os.link(".env", "folder/hard")
        return reads("folder/hard")()

    def symbolic() -> object:
        os.symlink(os.path.abspath(".env"), "soft")
        return reads("soft")()

    def copied() -> object:
        source, made = os.open(".env", os.O_RDONLY), os.open("copy", os.O_CREAT | os.O_RDWR)
        os.copy_file_range(source, made, 1000)
        return secret in os.pread(made, 1000, 0)

    def by_handle() -> object:
        handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
        mounted = ctypes.c_int()
        call("name_to_handle_at", -100, b".env", handle, ctypes.byref(mounted), 0)
        return call("open_by_handle_at", os.open("/", os.O_RDONLY), handle, 0) >= 0

    def other_root() -> object:
        if not os.fork():
            try:
                os.chroot(".")
                os._exit(1 if reads("/.env")() else 0)
            finally:
                os._exit(0)
        return os.wait()[1] == 0x100

    def first_bytes(path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read(10)

    hidden = os.path.abspath(".env")
    yield "read", reads(".env")
    yield "read by a path through the parent", reads(f"../{os.path.basename(os.getcwd())}/.env")
    yield "read through /proc/self/cwd", reads("/proc/self/cwd/.env")
    yield "read through /proc/self/root", reads(f"/proc/self/root{hidden}")
    yield "read a path descriptor", reads(f"/proc/self/fd/{os.open('.env', os.O_PATH)}")
    yield "read through a symbolic link", symbolic
    yield "rename, then read", renamed
    yield "rename to another folder, then read", renamed_elsewhere
    yield "hard link, then read", linked
    yield "copy in the kernel", copied
    yield "open by handle", by_handle
    yield "change the root", other_root
    yield "source in bash", lambda: secret in _output("bash", "-c", "set -x; . ./.env")
    yield "read the hidden folder", reads("private/secret")
    yield "list the hidden folder", lambda: os.listdir("private")
    yield "read in the home folder", reads(f"{facts['home']}/secret")
    yield "read in the session store", reads(f"{facts['store']}/secret")
    for name in ("environ", "mem", "auxv", "stack", "syscall"):
        yield f"read {name} of a process", lambda name=name: first_bytes(f"/proc/{pid}/{name}")
    yield "follow root of a process", lambda: os.listdir(f"/proc/{pid}/root")
    yield "follow a descriptor of a process", lambda: os.readlink(f"/proc/{pid}/fd/0")
    yield "read kernel memory", lambda: first_bytes("/proc/kcore")
    yield "read a disk", lambda: any(first_bytes(f"/dev/{one}") for one in os.listdir("/sys/block"))


def network_attempts(facts: dict[str, Any]) -> Iterator[Attempt]:
    """Reach a TCP, a UDP, a Unix and an abstract socket outside."""
    port, path, abstract = facts["port"], facts["socket"], "\0" + facts["abstract"]

    def stream(
        family: int, address: Any, kind: int = socket.SOCK_STREAM, protocol: int = 0
    ) -> Callable[[], object]:
        def attempt() -> bool:
            made = socket.socket(family, kind, protocol)
            made.settimeout(5)
            made.connect(address)
            made.send(b"escaped")
            return kind == socket.SOCK_STREAM  # who has got a datagram is seen outside

        return attempt

    v4, v6 = ("127.0.0.1", port), ("::1", port)
    for name, kind, protocol in (
        ("TCP", socket.SOCK_STREAM, 0),
        ("UDP", socket.SOCK_DGRAM, 0),
        ("MPTCP", socket.SOCK_STREAM, 262),
        ("SCTP", socket.SOCK_STREAM, 132),
        ("raw ICMP", socket.SOCK_RAW, 1),
        ("ping", socket.SOCK_DGRAM, 1),
    ):
        yield f"{name} over IPv4", stream(socket.AF_INET, v4, kind, protocol)
        yield f"{name} over IPv6", stream(socket.AF_INET6, v6, kind, protocol)

    def fast_open() -> object:
        return socket.socket().sendto(b"escaped", 0x20000000, v4)

    yield "TCP fast open", fast_open
    yield "Unix socket by path", stream(socket.AF_UNIX, path)
    yield "Unix datagram by path", stream(socket.AF_UNIX, path + ".dgram", socket.SOCK_DGRAM)
    yield "abstract socket", stream(socket.AF_UNIX, abstract)
    yield "packet socket", lambda: socket.socket(17, socket.SOCK_RAW, 3)
    yield "virtual machine socket", lambda: socket.socket(40, socket.SOCK_STREAM)
    yield "kernel crypto socket", lambda: socket.socket(38, socket.SOCK_SEQPACKET)
    yield "Bluetooth socket", lambda: socket.socket(31, socket.SOCK_RAW, 1)
    yield (
        "/dev/tcp of bash",
        lambda: (
            b"ok" in _output("bash", "-c", f"echo escaped > /dev/tcp/127.0.0.1/{port} && echo ok")
        ),
    )


def process_attempts(facts: dict[str, Any]) -> Iterator[Attempt]:
    """Signal, trace or limit a process outside."""
    pid = facts["victim"]

    def with_descriptor(name: str, *arguments: object) -> Callable[[], object]:
        return lambda: call(name, call("pidfd_open", pid, 0), *arguments) + 1

    def owner() -> object:
        one, other = socket.socketpair()
        import fcntl

        fcntl.fcntl(one, fcntl.F_SETOWN, pid)
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        other.send(b"x")
        return False  # `Outside` sees whether the signal has arrived

    for number in (0, signal.SIGTERM, signal.SIGKILL):
        yield f"kill -{int(number)}", lambda number=number: os.kill(pid, number) or True
    yield "kill the group", lambda: os.killpg(facts["group"], signal.SIGTERM) or True
    yield "signal a thread", lambda: call("tgkill", pid, pid, 15) + 1
    yield (
        "queue a signal",
        lambda: call("rt_sigqueueinfo", pid, 15, struct.pack("=iii", 15, 0, -1) + bytes(116)) + 1,
    )
    yield "signal a descriptor", with_descriptor("pidfd_send_signal", 15, 0, 0)
    yield "signal as owner of a socket", owner
    yield "trace", lambda: call("ptrace", 16, pid, 0, 0) + 1
    yield "seize", lambda: call("ptrace", 0x4206, pid, 0, 0) + 1
    yield "take a descriptor", with_descriptor("pidfd_getfd", 1, 0)
    place = ctypes.create_string_buffer(8)
    vector = struct.pack("=QQ", ctypes.addressof(place), 8)
    yield "read memory", lambda: call("process_vm_readv", pid, vector, 1, vector, 1, 0) + 1
    yield (
        "limit its processor time",
        lambda: call("prlimit64", pid, 0, struct.pack("=QQ", 1, 1), None) + 1,
    )
    yield "limit its files", lambda: call("prlimit64", pid, 7, struct.pack("=QQ", 3, 3), None) + 1
    yield "enter its namespaces", lambda: call("setns", call("pidfd_open", pid, 0), 0x20000000) + 1
    yield "compare", lambda: call("kcmp", os.getpid(), pid, 1, 0, 0) + 1
    yield "write its memory", lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR) + 1
    yield "change its score", lambda: Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def kernel_attempts() -> Iterator[Attempt]:
    """Use parts of the kernel that lead around the limits."""
    zeros = ctypes.create_string_buffer(256)
    yield "mount", lambda: call("mount", b"x", b".", b"tmpfs", 0, 0) + 1
    yield "bind mount", lambda: call("mount", b"/etc", b".", 0, 4096, 0) + 1
    yield "unmount", lambda: call("umount2", b"/proc", 2) + 1
    yield "pivot root", lambda: call("pivot_root", b".", b".") + 1
    yield "open a file system", lambda: call("fsopen", b"tmpfs", 0) + 1
    yield "clone a mount", lambda: call("open_tree", -100, b"/", 1) + 1
    for name, flag in (
        ("user", 0x10000000),
        ("mount", 0x20000),
        ("network", 0x40000000),
        ("PID", 0x20000000),
    ):
        yield f"unshare {name}", lambda flag=flag: call("unshare", flag) + 1

        def cloned(flag: int = flag) -> object:
            pid = call("clone", flag | 17, 0, 0, 0, 0)
            if not pid:
                os._exit(0)
            return os.waitpid(pid, 0)[0]

        yield f"clone into a {name} namespace", cloned

    def cloned_by_struct() -> object:
        pid = call("clone3", struct.pack("=QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
        if not pid:
            os._exit(0)
        return os.waitpid(pid, 0)[0]

    yield "clone3 into a user namespace", cloned_by_struct
    yield "add a key", lambda: call("add_key", b"user", b"longrein", b"x", 1, -4)
    yield "request a key", lambda: call("request_key", b"user", b"longrein", 0, 0)
    yield "keyring", lambda: call("keyctl", 0, -4, 1) + 1
    yield "BPF", lambda: call("bpf", 0, struct.pack("=IIIII", 2, 4, 4, 1, 0) + bytes(100), 120) + 1
    event = struct.pack("=IIQ", 1, 112, 0) + bytes(96)
    yield "performance events", lambda: call("perf_event_open", event, 0, -1, -1, 0) + 1
    yield "user page faults", lambda: call("userfaultfd", 1) + 1
    yield "io_uring", lambda: call("io_uring_setup", 4, zeros) + 1
    yield "kernel log", lambda: call("syslog", 3, zeros, 200) + 1
    yield "host name", lambda: call("sethostname", b"escaped", 7) + 1
    yield "kernel module", lambda: call("init_module", zeros, 1, b"") + 1

    def refused_ioctl(number: int) -> Callable[[], object]:
        def attempt() -> object:
            one, _ = socket.socketpair()
            libc.ioctl(one.fileno(), ctypes.c_ulong(number), zeros)
            return ctypes.get_errno() != errno.EPERM

        return attempt

    yield "type into a terminal", refused_ioctl(0x5412)
    yield "type into a console", refused_ioctl(0x541C)
    if platform.machine() == "x86_64":
        yield "32-bit system calls", _call_32_bit
        yield "x32 system calls", lambda: libc.syscall(0x40000000 | 39) > 0


def _call_32_bit() -> object:
    """Call `getpid` by the old interrupt, which has other numbers, in a child."""
    if not (pid := os.fork()):
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        os._exit(77 if found > 0 else 0)
    return os.waitpid(pid, 0)[1] >> 8 == 77


def _output(*words: str) -> bytes:
    return subprocess.run(words, capture_output=True, check=False, timeout=20).stdout


def attempts(facts: dict[str, Any]) -> Iterator[Attempt]:
    """List all attempts; the current folder is the project."""
    yield from write_attempts(facts["outside"])
    yield from read_attempts(facts)
    yield from network_attempts(facts)
    yield from process_attempts(facts)
    yield from kernel_attempts()


def main() -> None:
    """Make all attempts and print the number and the names of those that succeeded, as JSON."""
    found, made = [], 0
    for name, attempt in attempts(json.loads(sys.argv[1])):
        made += 1
        try:
            if attempt():
                found.append(name)
                print(
                    f"{'escaped'.upper()}: {name}"
                )  # the word itself would be found when this file is printed
        except (OSError, subprocess.SubprocessError):
            pass  # refused
    print(json.dumps({"made": made, "escaped": found}))


# --- Outside --------------------------------------------------------------------------------------


class Outside:
    """A folder, a process and sockets that a sandboxed command must not reach, and the project that
    it works in.

    Everything lies below one folder: `project` with `.env` and `private` hidden, `outside`, `home`,
    `store`.
    """

    def __init__(self, folder: Path, uid: int = -1) -> None:
        self.project, self.outside, self.home, self.store = (
            folder / n for n in ("project", "outside", "home", "store")
        )
        for made in (self.project / "private", self.outside / "empty", self.home, self.store):
            made.mkdir(parents=True)
        self.secret = "canary-5f2c9a"
        for path in (
            self.project / ".env",
            self.project / "private" / "secret",
            self.home / "secret",
        ):
            path.write_text(f"SECRET={self.secret}\n")
        (self.store / "secret").write_text(self.secret)
        (self.outside / "file").write_text("untouched")
        (self.project / "escape_calls.py").write_bytes(Path(__file__).read_bytes())
        if uid >= 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, uid, uid)
        as_user = {"user": uid, "group": uid, "extra_groups": []} if uid >= 0 else {}
        self.victim = subprocess.Popen(["sleep", "600"], start_new_session=True, **as_user)  # type: ignore[call-overload]
        self._sockets = self._listen(str(folder / "socket"))
        self._reached: list[str] = []
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _listen(self, path: str) -> list[socket.socket]:
        tcp = socket.create_server(("127.0.0.1", 0))
        self.port = tcp.getsockname()[1]
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", self.port))
        named, datagrams, abstract = (
            socket.socket(socket.AF_UNIX, kind)
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM)
        )
        self.socket, self.abstract = path, f"longrein-test-{os.getpid()}-{self.port}"
        named.bind(path)
        datagrams.bind(path + ".dgram")
        for one in (path, path + ".dgram"):
            os.chmod(one, 0o777)
        abstract.bind("\0" + self.abstract)
        named.listen()
        abstract.listen()
        return [tcp, udp, named, datagrams, abstract]

    def _watch(self) -> None:
        while self._stop not in (ready := select.select([*self._sockets, self._stop], [], [])[0]):
            for one in ready:
                self._reached.append(str(one.getsockname()))
                if one.type == socket.SOCK_STREAM:
                    one.accept()[0].close()
                else:
                    one.recv(100)

    def facts(self) -> str:
        """Return the argument of the program."""
        return json.dumps({
            "outside": str(self.outside), "secret": self.secret, "victim": self.victim.pid,
            "group": self.victim.pid,
            "home": str(self.home), "store": str(self.store), "port": self.port,
            "socket": self.socket,
            "abstract": self.abstract,
        })  # fmt: skip

    def changes(self) -> list[str]:
        """Return what has been reached."""
        found = [f"connected to {name}" for name in self._reached]
        file = self.outside / "file"
        if sorted(os.listdir(self.outside)) != ["empty", "file"] or file.read_text() != "untouched":
            found.append("files outside have changed")
        elif file.stat().st_nlink != 1:
            found.append("a file outside has another name")
        if self.victim.poll() is not None:
            found.append(f"the process outside has ended: {self.victim.returncode}")
        return found

    def close(self) -> None:
        """End the process and the sockets."""
        self.victim.kill()
        self.victim.wait()
        os.close(self._stopped)
        self._thread.join()
        os.close(self._stop)
        for one in self._sockets:
            one.close()


if __name__ == "__main__":
    main()
