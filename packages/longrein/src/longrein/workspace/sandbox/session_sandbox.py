"""The sandbox of one session: its private folders, and the confinement of each command."""

import copy
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from longrein.atomic_file import replace_file
from longrein.settings_schema import SandboxOptions
from longrein.workspace.files import is_inside, places_of, spellings
from longrein.workspace.sandbox.bubblewrap import (
    EMPTIED,
    PROXY_SOCKET,
    bubblewrap_arguments,
    plan_of,
)
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.sandbox.rung import Rung, Trial
from longrein.workspace.sandbox.tool_caches import (
    cache_environment,
    cache_folder,
    make_cache_folder,
)
from longrein.workspace.supervisor.shell_lines import FILTER, LANDLOCK, MOUNTS
from longrein.workspace.workspace_port import Confinement, SharedFolders
from longrein_context.events.escape import one_line

if TYPE_CHECKING:
    from longrein.permissions.network_hosts import Target
    from longrein.workspace.sandbox.protected import MissingPaths, NewFiles, ProtectedPaths
    from longrein.workspace.sandbox.proxy import Proxy

ADDRESS_FAMILIES = (1, 2, 10, 16)
"""Families of sockets in the sandbox: Unix, IPv4, IPv6, netlink. Others reach devices or the
host of this machine.
"""
ALL_DOMAINS = "*"
LANDLOCK_DOMAINS = (
    "sandbox.network names hosts, but Landlock cannot let commands reach single hosts, so they "
    "have no network: "
    "install bubblewrap"
)
IMAGE_DOMAINS = (
    "sandbox.network names hosts, and commands in sandbox.image cannot reach single hosts, so they "
    'have no network: name none or `"*"`'
)
INTERPRETERS = ("python3", "python", "node", "ruby", "java")
"""Programs whose whole installation must be visible, wherever a link on the search path leads."""
WITH_FILES = tuple(one for one in EMPTIED if one != "/run")
"""Folders that commands see empty, and that hold files of users."""
MADE_BETWEEN = "made between two commands, by the user or by a process that a command left behind"
INSTALLED = ("bin", "lib", "lib64", "libexec", "include")
"""Folders of an installation."""
ENVIRONMENT = ("pyvenv.cfg", *INSTALLED)
"""What a virtual environment of Python consists of; its first file marks it."""


def network_problem(options: SandboxOptions, rung: Rung) -> str:
    """Return why a rung cannot give the network that the settings name; '' where it can."""
    if not options.network or ALL_DOMAINS in options.network:
        return ""
    if options.image:
        return IMAGE_DOMAINS
    return LANDLOCK_DOMAINS if rung.name == "landlock" else ""


def image_problem(options: SandboxOptions, rung: Rung) -> str:
    """Return why commands cannot run in the image of the settings; '' where they can."""
    if not options.image:
        return ""
    if rung.name != "bubblewrap":
        return f"commands run in sandbox.image by bubblewrap alone ({rung.reason})"
    if not os.path.isabs(options.image) or not os.path.isdir(options.image):
        return f"sandbox.image is {options.image!r}, which is no absolute path of a folder"
    return ""


NEW_FILES_SHOWN = 5


class SandboxReport(msgspec.Struct, frozen=True):
    """Files that confined commands made and that programs run or obey later."""

    moved: tuple[tuple[str, str], ...] = ()
    """(path, its new place; '' if it is still there) of each protected path that had to be moved
    away.
    """
    new: tuple[tuple[str, str], ...] = ()
    """(path, what obeys it) of each other new file."""

    def lines(self) -> list[str]:
        """Return the lines for the model and the user."""
        moved = ", ".join(
            f"{one_line(path)} ({'now ' + one_line(to) if to else 'still there'})"
            for path, to in self.moved
        )
        new = ", ".join(f"{one_line(path)} ({by})" for path, by in self.new[:NEW_FILES_SHOWN])
        more = len(self.new) - NEW_FILES_SHOWN
        new += f" and {more} more" if more > 0 else ""
        why = "a confined command may not make files that are run or obeyed later"
        return [
            *([f"{why}, so they were moved away: {moved}"] if moved else []),
            *([f"new, and obeyed later by the program named: {new}"] if new else []),
        ]


class SessionSandbox:
    """The sandbox of a session and its subagents."""

    def __init__(
        self,
        options: SandboxOptions,
        *,
        folder: str,
        home: str,
        state_dir: str,
        environ: Mapping[str, str],
        roots: Sequence[str],
    ) -> None:
        """Start to look for a rung.

        `folder` is the session's own; the private home and /tmp of its commands are made there.
        `state_dir` holds all sessions, which commands must not reach. No program of the sandbox is
        taken from `roots`.
        """

        self._options, self._folder = options, os.path.join(folder, "sandbox")
        self._unreported = SandboxReport()
        self._state_dir, self._environ = os.path.realpath(state_dir), environ
        self._roots = tuple(roots)
        self.home = os.path.realpath(home)
        """Home folder of the user."""
        self._named: dict[str, None] = {}
        self._problems_told: set[str] = set()
        self._submodule_problem = ""
        self._proxies: dict[str, Proxy] = {}
        kept = os.path.join(state_dir, "sandbox.json")
        self._trial = None if options.mode == "off" else Trial(environ, roots, kept)

    @cached_property
    def rung(self) -> Rung:
        """Way in which commands are confined. The first use may wait some milliseconds for a
        trial run.
        """
        if self._trial is None:
            return Rung("none", "sandbox.mode is off")
        return self._trial.rung

    @cached_property
    def missing(self) -> "MissingPaths":
        """Protected paths that commands must not make; where they can be changed, also those
        that exist.
        """
        from longrein.workspace.sandbox.protected import MissingPaths, RestoredPaths

        kind = RestoredPaths if self.rung.name == "landlock" else MissingPaths
        return kind(os.path.join(self._folder, "moved"))

    @cached_property
    def new_files(self) -> "NewFiles":
        """Files that commands may make and that programs obey later."""
        from longrein.workspace.sandbox.protected import NewFiles

        return NewFiles()

    def shared_folders(self) -> SharedFolders:
        """Return the folders outside the roots that commands and file tools share."""
        if not self.rung.confines:
            return SharedFolders()
        is_tmp = self.rung.name == "bubblewrap"
        tmp = os.path.join(self._folder, "tmp") if is_tmp else ""
        return SharedFolders(tmp, self._named, self.cache)

    def show_named(self, paths: Iterable[str]) -> None:
        """Let commands read from now on what the user or a file tool has named, where they would
        see an empty folder: a path means one file for all.

        `paths`: real paths. Secrets, what rules forbid to read, sockets and /run, where those of
        daemons are, stay hidden.
        """
        absent = (*WITH_FILES, self.home)
        others = (*absent, self._state_dir, *self._roots)
        for path in paths:
            is_absent = path.startswith(absent) and is_inside(path, absent)
            if is_absent and not any(is_inside(one, (path,)) for one in others):
                self._named[path] = None

    def _existing_named(self, policy: SandboxPolicy) -> tuple[str, ...]:
        found = (one for one in self._named if not is_inside(one, policy.hidden))
        return tuple(one for one in found if os.path.isfile(one) or os.path.isdir(one))

    def describe(self) -> str:
        """Return what commands can change and which network they have, for the model."""
        if not self.rung.confines:
            return "Commands run without a sandbox."
        shared = self.shared_folders()
        tmp = "/tmp (their own, with the user's files there that are named in this session)"
        places = tmp if shared.tmp else f"$TMPDIR ({os.path.join(self._folder, 'tmp')})"
        network = "none but loopback of their own"
        if self.network:
            network = "all of it"
        elif self.entries:
            network = f"by HTTPS_PROXY, {', '.join(self.entries)}"
        if self._options.image:
            return (
                "Commands run in a container with a file system of its own, all of which they can "
                f"change; of this machine's files they have the session's folders and {tmp}. File "
                "tools see this machine's files: in the container, look with commands.\n"
                f"Network of commands: {network}."
            )
        return (
            f"Commands run in a sandbox: they can change the session's folders, {places} and the "
            "caches of tool chains; all else is read-only, most of home hidden.\n"
            f"Network of commands: {network}."
        )

    @cached_property
    def cache(self) -> str:
        """Folder for the caches of tool chains, the same for all sessions of the project."""
        root = os.path.realpath(self._roots[0])
        return cache_folder(self.home, self._environ, root) or os.path.join(self._folder, "cache")

    def environment(self) -> dict[str, str]:
        """Return the variables that lead tool chains to the cache folder."""
        written = [name.removeprefix("~/") for name in self._options.home_writable]
        return cache_environment(self.cache, self.home, self._environ, written)

    @property
    def network(self) -> bool:
        """True if confined commands reach all of the network."""
        return ALL_DOMAINS in self._options.network

    @property
    def entries(self) -> tuple[str, ...]:
        """Hosts that `sandbox.network` names, where confined commands reach the network through the
        proxy only.

        Empty where they reach all of it or none. `ask` counts as an entry.
        """
        through = not self.network and self.rung.name == "bubblewrap" and not self._options.image
        return self._options.network if through else ()

    def with_options(self, **changes: str | tuple[str, ...]) -> "SessionSandbox":
        """Return this sandbox with other options, for a program that may do more than commands."""
        other = copy.copy(self)
        other._options = msgspec.structs.replace(self._options, **changes)
        for name in ("visible_home", "_links", "_program_folders"):
            other.__dict__.pop(name, None)
        return other

    @property
    def options(self) -> SandboxOptions:
        """Settings of this sandbox."""
        return self._options

    def take_problem(self) -> str:
        """Return once, in one line, what the settings ask for and this rung does not give; ''
        for nothing.
        """
        problems = (network_problem(self._options, self.rung), self._submodule_problem)
        found = [one for one in problems if one and one not in self._problems_told]
        self._problems_told.update(found)
        return found[0] if found else ""

    def open_proxy(
        self,
        session: str,
        decide: "Callable[[Target], Awaitable[str]]",
        refused: Callable[[str], None],
    ) -> str:
        """Return the socket of the proxy for the commands of a session or subagent, started at the
        first use.

        `decide` returns why a host is refused, '' where it is allowed. `refused` is told each
        refusal. Raises OSError.
        """
        path = os.path.join(self._folder, f"proxy-{session}")
        if session not in self._proxies:
            from longrein.workspace.sandbox.proxy import Proxy

            self._make_folders()
            proxy = Proxy(self.entries, decide, refused)
            proxy.listen_unix(path)
            self._proxies[session] = proxy
        return path

    async def close(self) -> None:
        """End the proxies: commands that go on have no network any more."""
        while self._proxies:
            session, proxy = self._proxies.popitem()
            await proxy.close()
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, f"proxy-{session}"))

    def confine(
        self,
        roots: Sequence[str],
        cwd: str,
        hidden: Sequence[str],
        locked: Sequence[str] = (),
        proxy_socket: str = "",
        shown: Sequence[str] = (),
    ) -> Confinement | None:
        """Return how to confine a command in `cwd`; None without a sandbox. Raises OSError on a
        full disk.

        `hidden` and `locked` are existing real paths that rules forbid to read and to change.
        `proxy_socket` is what `open_proxy` returned; '' for no proxy. `shown` are further real
        paths that the command may read.
        """
        if self._trial is None or not self.rung.confines:
            return None
        self._trial.confirm()
        policy = self.policy(roots, hidden, locked)
        if shown or self._named:
            policy = _with_shown(policy, (*shown, *self._existing_named(policy)))
        if self.rung.name == "landlock":
            return self._landlocked(policy)
        if proxy_socket:
            policy = self._with_proxy(policy, proxy_socket)
        return self._mounted(policy, os.path.realpath(cwd))

    def _landlocked(self, policy: SandboxPolicy) -> Confinement:
        from longrein.workspace.sandbox import landlock

        landlock.link_visible(policy)
        path = self._write_plan(landlock.plan_of(policy))
        env = {**self.environment(), **landlock.environment(policy)}
        return Confinement((LANDLOCK,), path, env)

    def _mounted(self, policy: SandboxPolicy, cwd: str) -> Confinement:
        plan = self._write_plan(plan_of(policy))
        words = bubblewrap_arguments(
            self.rung.reason, cwd, network=policy.network, seccomp=FILTER, top=policy.image or "/"
        )
        filter_path = os.path.join(self._folder, "filter")
        if not policy.proxy_socket:
            return Confinement((MOUNTS, plan, *words), filter_path, self.environment())
        from longrein.workspace.sandbox.proxy import proxy_environment
        from longrein.workspace.sandbox.proxy_forwarder import PORT, forwarder_words

        words += forwarder_words(os.path.realpath(sys.executable), PROXY_SOCKET)
        env = {**self.environment(), **proxy_environment(PORT, entries=self.entries)}
        return Confinement((MOUNTS, plan, *words), filter_path, env)

    def _write_plan(self, plan: bytes) -> str:
        return self._write(f"plan-{crc32(plan):08x}", plan)

    @staticmethod
    def _with_proxy(policy: SandboxPolicy, proxy_socket: str) -> SandboxPolicy:
        """Add the proxy's socket, and the program that leads to it unless a root shows it
        already.
        """
        from longrein.workspace.sandbox import proxy_forwarder

        path = os.path.realpath(proxy_forwarder.__file__)
        shown = any(path.startswith(root + "/") for root in policy.roots)
        visible = policy.home_visible if shown else (*policy.home_visible, path)
        return msgspec.structs.replace(policy, proxy_socket=proxy_socket, home_visible=visible)

    def policy(
        self, roots: Sequence[str], hidden: Sequence[str], locked: Sequence[str] = ()
    ) -> SandboxPolicy:
        """Return the limits of a command as of now."""
        from longrein.workspace.sandbox.protected import real_below, writable_exceptions

        self._make_folders()
        all_protected, writable, listing = self.protected(roots)
        protected = listing.may_exist(all_protected)
        exceptions = [folder for path in protected for folder in writable_exceptions(path)]
        existing = real_below((path for path in protected if not _is_git_folder(path)), writable)
        read_only = [path for path in existing if path not in roots]
        # a link may lead out: a mount there would show what the sandbox hides
        locked = real_below(locked, writable)
        return SandboxPolicy(
            roots=tuple(dict.fromkeys((*writable, *exceptions))),
            home=self.home,
            home_visible=self.visible_home,
            home_writable=(*self._expanded(self._options.home_writable), self.cache),
            links=self._links,
            read_only=tuple(dict.fromkeys((*locked, *read_only))),
            hidden=tuple(dict.fromkeys((self._state_dir, *self._secrets, *hidden))),
            network=self.network,
            private_tmp=os.path.join(self._folder, "tmp"),
            private_home=os.path.join(self._folder, "home"),
            image=os.path.realpath(self._options.image) if self._options.image else "",
            unreadable=os.path.join(self._folder, "unreadable"),
        )

    def protected(self, roots: Sequence[str]) -> "ProtectedPaths":
        """Return the protected paths as of now.

        `roots` were real when the session began: a command may have put a link in place of one.
        """
        from longrein.workspace.sandbox.protected import (
            Listing,
            ProtectedPaths,
            git_folder,
            protected_paths,
        )

        listing = Listing()
        gits = [found for root in roots if (found := git_folder(root, self.home)) is not None]
        paths = [path for root in roots for path in protected_paths(root, listing)]
        for git in gits:
            paths += git.protected()
            self._submodule_problem = self._submodule_problem or git.problem
        writable = [*roots, *self._expanded(self._options.write)]
        writable += [folder for git in gits for folder in git.folders()]
        return ProtectedPaths(paths, writable, listing)

    def begin(self, roots: Sequence[str], *, others_run: bool) -> None:
        """Note a command's start, to find what it makes at protected paths."""
        self.missing.begin(self.protected(roots), others_run=others_run)
        self.new_files.begin(roots)

    def accept(self, written: Sequence[str]) -> None:
        """Accept what exists now at and below `written`, real paths, and the protected folders
        around them: longrein itself or an approved command may have made it.
        """
        self.missing.accept(written)
        self.new_files.accept(written)

    def end(self, roots: Sequence[str]) -> None:
        """Note a command's end, also of one that goes on in the background. See `look`."""
        self._add(self.missing.end(), roots)

    def look(self, roots: Sequence[str]) -> None:
        """Move protected files away that a command has made; note other files that are obeyed.

        What was found waits for `take_report`, so that no way out of a call loses it.
        """
        self._add(self.missing.look(), roots)

    def take_report(self) -> SandboxReport:
        """Return once what was found. The caller puts it into the result of a call, or the end of
        a task.
        """
        report, self._unreported = self._unreported, SandboxReport()
        return report

    def _add(self, moved: Sequence[tuple[str, str]], roots: Sequence[str]) -> None:
        between = [(path, MADE_BETWEEN) for path in self.missing.take_between()]
        self._unreported = SandboxReport(
            (*self._unreported.moved, *moved),
            (*self._unreported.new, *between, *self.new_files.end(roots)),
        )

    def _make_folders(self) -> None:
        from longrein.workspace.sandbox.landlock import filter_bytes

        if not os.path.isdir(self.cache):
            make_cache_folder(self.cache, self.home)
        if os.path.exists(os.path.join(self._folder, "filter")):
            return
        # one by one: the mode counts for the last folder of a path only
        for folder in ("", "tmp", "home"):
            os.makedirs(os.path.join(self._folder, folder), 0o700, exist_ok=True)
        # as /tmp is; nobody else passes the folders above
        os.chmod(os.path.join(self._folder, "tmp"), 0o1777)
        os.close(os.open(os.path.join(self._folder, "unreadable"), os.O_CREAT | os.O_WRONLY, 0o000))
        self._write("filter", filter_bytes(ADDRESS_FAMILIES))

    def _write(self, name: str, data: bytes) -> str:
        """Write a file of the session's folder unless it exists; return its path. Raises
        OSError.
        """
        path = os.path.join(self._folder, name)
        if not os.path.exists(path):
            replace_file(path, (data,), durable=False, temporary=f"{path}.{os.getpid()}")
        return path

    @cached_property
    def visible_home(self) -> tuple[str, ...]:
        """Existing paths that commands may read although the folder above is empty for them.

        The settings name them, or programs on the search path come from there.
        """
        folders = self._program_folders
        places = [places_of(f"{one}/{name}") for one in folders for name in INTERPRETERS]
        programs = [one[-1] for one in places if not self._are_changeable(one)]
        programs.append(os.path.realpath(sys.executable))
        prefixes = dict.fromkeys(os.path.dirname(os.path.dirname(program)) for program in programs)
        parts = [f"{prefix}/{part}" for prefix in prefixes for part in INSTALLED]
        parts += [path for folder in folders for path in _around_programs(folder)]
        found = dict.fromkeys(map(os.path.realpath, (*folders, *parts)))
        absent = [one + "/" for one in (*EMPTIED, self.home)]
        below = [one for one in found if one.startswith(tuple(absent)) and os.path.exists(one)]
        return tuple(dict.fromkeys((*self._expanded(self._options.home), *below)))

    @cached_property
    def _program_folders(self) -> list[str]:
        """Folders of the search path that commands cannot change: a command can make links, so
        nothing that it can change decides what is shown.
        """
        named = (one for one in self._environ.get("PATH", "").split(":") if one.startswith("/"))
        return [one for one in named if not self._are_changeable(places_of(one))]

    @cached_property
    def _links(self) -> tuple[tuple[str, str], ...]:
        """Each name of the user's for something that commands see, and its real path if that is
        another one.
        """
        options = self._options
        below_home = (*options.home, *options.home_writable, *options.write)
        named = [os.path.join(self.home, name.removeprefix("~/")) for name in below_home]
        named += [self._environ.get("HOME", ""), *self._roots, *self._program_folders]
        paths = {os.path.normpath(path) for path in named if path.startswith("/")}
        real = [(path, os.path.realpath(path)) for path in sorted(paths) if os.path.exists(path)]
        return tuple(one for one in real if one[0] != one[1])

    @cached_property
    def _secrets(self) -> tuple[str, ...]:
        from longrein.workspace.sandbox.secret_places import secret_paths

        named = self._expanded(self._options.home)
        found = secret_paths(self.home, self._environ)
        return tuple(path for path in found if path not in named)

    def _expanded(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the existing real paths of names below home, `~/…` or absolute paths."""
        existing = (path for path in self._joined(names) if os.path.exists(path))
        places = [places_of(path) for path in existing]
        return tuple(one[-1] for one in places if not self._are_changeable(one[:-1]))

    def _joined(self, names: Sequence[str]) -> list[str]:
        return [os.path.join(self.home, name.removeprefix("~/")) for name in names]

    @property
    def search_path(self) -> str:
        """Search path of commands."""
        return self._environ.get("PATH", "")

    def is_changeable(self, path: str, held: Sequence[str] = ()) -> bool:
        """Return True if commands can change a file, or put a link on the way to it; or if it lies
        in a folder of `held`.
        """
        places, folders = (path, *places_of(path)), spellings(held)
        return self._are_changeable(places) or any(is_inside(one, folders) for one in places)

    def _are_changeable(self, places: Sequence[str]) -> bool:
        """Return True if commands can put a link at one of these places."""
        named = self._joined((*self._options.write, *self._options.home_writable))
        folders = spellings((*self._roots, *named))
        return any(is_inside(place, folders) and place not in folders for place in places)


def _around_programs(folder: str) -> list[str]:
    """Return what the programs of a folder need beside it: their virtual environment, or their
    packages of npm.
    """
    above, _, name = folder.rstrip("/").rpartition("/")
    if os.path.isfile(f"{above}/{ENVIRONMENT[0]}"):
        return [f"{above}/{part}" for part in ENVIRONMENT]
    return [above] if name == ".bin" and above.endswith("/node_modules") else []


def _is_git_folder(path: str) -> bool:
    return path.endswith("/.git") and os.path.isdir(path)


def _with_shown(policy: SandboxPolicy, shown: Sequence[str]) -> SandboxPolicy:
    """Add paths to read, also below a hidden folder; those in a root are there already."""
    more = tuple(
        path
        for path in shown
        if not any(f"{path}/".startswith(f"{root}/") for root in policy.roots)
    )
    return msgspec.structs.replace(
        policy, home_visible=(*policy.home_visible, *more), read_only=(*policy.read_only, *more)
    )
