"""A git repository of longrein's own that keeps copies of a work tree.

The repository (`ShadowRepository`) lies in the session's folder and has an index of its own. The
user's index, refs, history, settings, hooks and filters are not used: files are stored byte for
byte. Contents of the user's last commit are borrowed and not stored again. Files that `.gitignore`
excludes, repositories inside the tree and files above `FILE_BYTES_MAX` are left out.
"""

import os
import stat
import subprocess
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

import msgspec

from longrein.atomic_file import replace_file
from longrein.folder_trees import remove_tree, walk_folders
from longrein.workspace.atomic_write import PREFIX, SUFFIX
from longrein.workspace.files import find_program, read, spellings
from longrein.workspace.folder_stamps import FolderStamps
from longrein.workspace.folder_watch import FolderWatch
from longrein.workspace.git import NO_PROGRAMS, quiet_environment
from longrein.workspace.supervisor.openat import open_folder
from longrein.workspace.tree_records import (
    CLOSED,
    UNREADABLE,
    CheckpointError,
    TreeFile,
    TreeRecord,
    decode,
    encode,
    usual_mode,
)
from longrein.workspace.users_repository import GIT_S, UsersRepository
from longrein.workspace.walk import entries

FILE_BYTES_MAX = 50 << 20
"""Larger files are left out."""
TRACKED_MAX = 200_000
"""Files of the largest git repository that is kept."""
LOOSE_FILES_MAX, LOOSE_BYTES_MAX = 20_000, 1 << 30
"""Files and bytes of the largest folder outside git that is kept."""
RACY_NS = 2_000_000_000
"""Age of a change in nanoseconds below which a second one may have the same time stamp in whole
seconds.
"""
LOOSE_OBJECTS_MAX = 30
"""Objects that a look may leave in files of their own."""
FOLDER = "040000"
"""Mode of a folder in the lines of `git diff-tree`."""
WRITTEN_MAX = 500
"""Written files above which all of the tree is looked at."""
EMPTY_WALK_MAX = 5_000
"""Entries of new folders that are searched for empty ones."""

CONFIG = """[core]
\trepositoryformatversion = 0
\tbare = false
\tfileMode = true
\tsymlinks = true
\tignoreCase = false
\tautocrlf = false
\tsafecrlf = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\tpreloadIndex = true
\tsplitIndex = false
\tprotectNTFS = false
\tprotectHFS = false
\tfsync = none
\tlooseCompression = 1
[index]
\tversion = 4
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
ATTRIBUTES = "* -text -ident -filter !eol !crlf !working-tree-encoding -diff -merge\n"
"""Above every `.gitattributes` of the tree: no content is converted."""
IGNORE = ".gitignore"
INNER = "a git repository of its own"
ENDED = "git ended while it was read"
LOOK = ["diff-files", "--raw", "-z", "--relative", "--no-renames", "--ignore-submodules=all"]
OTHERS = ["ls-files", "-z", "-o", "--exclude-standard"]
NEW = [*OTHERS, "--directory"]
"""Lists a folder that holds no file of the index as one entry, also an empty one."""
ADD = ["update-index", "--add", "--replace", "-z", "--stdin"]
IN_PACK = ["-c", "core.bigFileThreshold=1"]
"""Makes git write what it adds into one pack: 300 files take it 30 ms, and 500 one by one. It
compresses also what it has already, so that borrowed files are added without.
"""
REMOVE = ["update-index", "--force-remove", "-z", "--stdin"]
OWN = ["rev-list", "--objects", "--no-object-names", "--ignore-missing", "--missing=allow-any"]
OWN += ["--all", "--indexed-objects"]
"""Lists what checkpoints need and is stored here; the rest is the user's."""
OUTGOING = "outgoing"
"""Folder of the pack that goes to a store."""
LAST = "last.json"
"""File of the last record, which belongs to the index."""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class _Changes(msgspec.Struct):
    """Findings of a look at the work tree."""

    present: dict[str, None] = {}
    """Files to be added."""
    gone: dict[str, None] = {}
    """Files to be removed, before others are added."""
    tracked: dict[str, None] = {}
    """Those of `present` that are in the index."""
    folders: list[str] = []
    skipped: dict[str, str] = {}


class ShadowRepository:
    """The repository of one root. Blocking; used by one thread at a time."""

    def __init__(
        self, folder: str, root: str, environment: Mapping[str, str], left_out: Iterable[str] = ()
    ) -> None:
        """`folder`: where the repository lies. `left_out`: absolute paths that are never kept.

        Raises `CheckpointError` where git is missing or the tree is too large, OSError.
        """
        self.folder, self.root = folder, root
        self._environment = quiet_environment(environment)
        git = find_program("git", self._environment.get("PATH", ""), spellings([root]))
        if not git:
            raise CheckpointError("git is not installed")
        self._git = git
        self._index = os.path.join(folder, "index")
        self._last: TreeRecord | None = None
        self.touched: set[str] = set()
        """Files that are there and that looks have found changed or added since somebody emptied
        it; the first look finds none.
        """
        self._latest: TreeRecord | None = None
        """The last record, also when the index that belongs to it was forgotten."""
        self._racy: dict[str, int] = {}
        """Files changed at the last look -> ctime in nanoseconds; git compares whole seconds."""
        self._stamps = FolderStamps(root)
        self._watch = FolderWatch(root)
        self._started: deque[subprocess.Popen[bytes]] = deque(maxlen=2)
        """The newest processes of git; two work side by side at most."""
        self._is_given_up = False
        self._user = UsersRepository(git, root, self._environment)
        self._user_stamp: list[int] = []
        self._open(tuple(left_out))

    # --- opening ----------------------------------------------------------------------------------

    def _open(self, left_out: tuple[str, ...]) -> None:
        """Create what is missing, and read the user's rules of ignored files again."""
        for name in (
            "objects",
            "objects/info",
            "refs",
            "refs/kept",
            "info",
        ):  # one by one, so that each is 0700
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        self._top = self._user.top or self.root
        lines = [f"{PREFIX}*{SUFFIX}"]
        base = self._top.rstrip("/") + "/"
        lines += [
            _pattern(path[len(base) :])
            for path in (*left_out, self.folder)
            if path.startswith(base)
        ]
        own = self._user.exclude.decode("utf-8", "surrogateescape") + "\n" + "\n".join(lines) + "\n"
        self._put("config", CONFIG + self._user.excludes_file())
        self._put("HEAD", "ref: refs/heads/none\n")
        self._put("info/attributes", ATTRIBUTES)
        self._put("info/exclude", own)
        self._remove_lock()
        self._load_last()
        if self._last is None:
            self._check_size()

    def _put(self, name: str, text: str) -> None:
        replace_file(
            os.path.join(self.folder, name),
            [text.encode("utf-8", "surrogateescape")],
            durable=False,
        )

    def _check_size(self) -> None:
        """Raise `CheckpointError` for a tree that is too large."""
        if self._user.index:
            with suppress(OSError):
                head = read(os.path.normpath(self._user.index), 12)
                if int.from_bytes(head[8:12], "big") > TRACKED_MAX:
                    raise CheckpointError(f"{self._top} has more than {TRACKED_MAX:,} files")
            return
        count = size_bytes = 0
        for path, is_folder in entries(self.root, lambda _: True):
            if not is_folder:
                count += 1
                with suppress(OSError):
                    size_bytes += os.lstat(path).st_size
            if count > LOOSE_FILES_MAX or size_bytes > LOOSE_BYTES_MAX:
                most = f"{LOOSE_FILES_MAX:,} files or {LOOSE_BYTES_MAX >> 20:,} MB"
                raise CheckpointError(f"{self.root} is no git repository and has more than {most}")

    # --- keeping ----------------------------------------------------------------------------------

    def take(self, *, trusts_watch: bool = False) -> TreeRecord:
        """Keep the tree as it is now; a root that is gone is an empty tree.

        `trusts_watch`: only the files that the kernel has told of are looked at, where it tells.
        Raises `CheckpointError`, OSError.
        """
        if not os.path.isdir(self.root):
            return TreeRecord(EMPTY_TREE, self._last.umask if self._last is not None else 0o022)
        for again in (True, False):
            try:
                return self._take(trusts_watch=trusts_watch and again)
            except (CheckpointError, OSError):
                # the index is damaged, or a file changed during the look; or the index has what
                # the last record has not
                self.forget_index()
                if not again:
                    raise
        raise AssertionError

    def _written(self) -> dict[str, bool] | None:
        """Return the files that were written since the last look that succeeded, as
        `FolderWatch.take`; None where the next look may find others.
        """
        if self._last is None or not self._stamps.complete:
            return None
        if _stamp(self._user.index) != self._user_stamp:
            return None
        written = self._watch.take(self._stamps.folders)
        if written is None or len(written) > WRITTEN_MAX:
            return None
        return None if any(map(self._concerns_others, written)) else written

    def _concerns_others(self, path: str) -> bool:
        """Return True for rules of ignored files, and for a file with hard links: the kernel tells
        the one that was used.
        """
        if os.path.basename(path) == IGNORE:
            return True
        with suppress(OSError):
            return os.lstat(os.path.join(self.root, path)).st_nlink > 1
        return False

    def close(self) -> None:
        """End the watch over the tree."""
        self._watch.close()

    def _take(self, *, trusts_watch: bool) -> TreeRecord:
        written = self._written() if trusts_watch else None
        if written == {} and self._last is not None:
            return self._last
        found = self._look() if written is None else self._look_at(written)
        is_first = self._last is None
        last = self._last or TreeRecord(EMPTY_TREE, self._usual_umask(found.present))
        modes = dict(last.modes)
        for path in [*found.present]:
            self._sort(path, found, modes, last.umask)
        if found.gone:
            self._feed(REMOVE, found.gone)
            for path in found.gone.keys() - found.present.keys():
                modes.pop(path, None)
                self._racy.pop(path, None)
        if found.present:
            borrows = is_first and bool(self._user.objects)
            in_pack = len(found.present) > LOOSE_OBJECTS_MAX and not borrows
            self._feed([*IN_PACK * in_pack, *ADD], found.present, borrow=borrows)
        if not is_first:
            self.touched -= found.gone.keys()
            self.touched |= found.present.keys()
        before = self._latest if is_first else None
        tree = last.tree
        if found.gone or found.present:
            tree = self._write_tree()
            if is_first:
                self._own_first(tree)
            else:
                self._own(tree, last.tree)
        record = TreeRecord(tree, last.umask, modes, tuple(sorted(found.folders)), found.skipped)
        if record != self._last:
            self.keep(tree)
        if before is not None:  # all files were read anew
            self.touched |= self._changed_since(before, record)
        self._last = self._latest = record
        if found.present:  # the index was written just now
            racy_ns = os.stat(self._index).st_mtime_ns - RACY_NS
            self._racy = {path: at for path, at in self._racy.items() if at >= racy_ns}
        self._store_last()
        return record

    def _changed_since(self, before: TreeRecord, record: TreeRecord) -> set[str]:
        """Return the files that may have changed and are there: all where the trees that the copy
        before had borrowed are gone from the user's repository.
        """
        try:
            return {path for path, (_, after) in self.changed(before, record).items() if after}
        except CheckpointError:
            return set(self.files(record))

    def _look_at(self, written: Mapping[str, bool]) -> _Changes:
        """Compare these files with the index; all others are as they were.

        A file that is not in the index is new, or it was left out at the last look too.
        """
        found = _Changes()
        new = _literal(path for path, may_be_new in written.items() if may_be_new)
        beside = self._start([*OTHERS, "--", *new]) if new else None
        if written:
            _sort_changed(self._run([*LOOK, "--", *_literal(written)]), found)
        if beside is not None:
            found.present.update(dict.fromkeys(_paths(_finish(beside))))
        self._look_at_racy(found)
        self._keep_others(found)
        above = {os.path.dirname(path) for path in written} - {""}
        found.folders = [*(set(found.folders) - above), *filter(self._is_empty, above)]
        return found

    def _look(self) -> _Changes:
        """Compare the work tree with the index."""
        self._watch.begin(self._stamps.folders)
        beside = self._start(NEW) if self._stamps.look(self._looked_ns()) else None
        changed = self._run(LOOK)
        untracked = None if beside is None else _finish(beside)
        found = _Changes()
        _sort_changed(changed, found)
        has_rules = any(os.path.basename(path) == IGNORE for path in found.present)
        if found.gone:  # git lists neither emptied folders of these nor what has taken their place
            self._feed(REMOVE, found.gone)
        if found.gone or (untracked is None and has_rules):
            untracked = self._run(NEW)
        self._look_at_racy(found)
        found.present.update(dict.fromkeys(self._forced()))
        if untracked is None:
            self._keep_others(found)
        else:
            self._look_at_others(_paths(untracked), found)
        found.skipped.update(dict.fromkeys(self._stamps.closed, CLOSED))
        self._stamps.add([*found.present, *(f"{folder}/." for folder in found.folders)])
        if len(found.present) > TRACKED_MAX:
            raise CheckpointError(f"{self.root} has more than {TRACKED_MAX:,} files")
        return found

    def _keep_others(self, found: _Changes) -> None:
        """Take over what the last look found beside the files of the index: no folder has
        changed since.
        """
        assert self._last is not None
        found.folders = list(self._last.folders)
        for path, why in self._last.skipped.items():
            if why == INNER:
                found.skipped[path] = why
            else:
                found.present[path] = None  # it may be small or readable now

    def _look_at_others(self, untracked: list[str], found: _Changes) -> None:
        """Sort files that are not in the index, and folders that hold none of it."""
        folders = [path[:-1] for path in untracked if path.endswith("/")]
        self._look_into(folders, found)
        if folders:
            untracked = _paths(self._run(OTHERS))
        for path in untracked:
            if path.endswith("/"):
                found.skipped[path[:-1]] = INNER
            else:
                found.present[path] = None

    def _look_at_racy(self, found: _Changes) -> None:
        """Find files that changed twice within a second, which git may not see."""
        for path, ctime_ns in list(self._racy.items()):
            if path in found.present or path in found.gone:
                continue
            with suppress(OSError):
                if os.lstat(os.path.join(self.root, path)).st_ctime_ns != ctime_ns:
                    found.present[path] = found.gone[path] = (
                        None  # removed and added: its stamp may be the old one
                    )

    def _is_empty(self, folder: str) -> bool:
        with suppress(OSError), os.scandir(os.path.join(self.root, folder)) as entries:
            return next(entries, None) is None
        return False

    def _look_into(self, folders: Iterable[str], found: _Changes) -> None:
        """Find empty folders in new ones.

        The first look finds all folders new, and may stop before the last; later ones find few.
        """
        left = EMPTY_WALK_MAX
        self._stamps.complete = True

        def skip(error: OSError) -> None:
            path = os.path.relpath(error.filename, self.root)
            found.skipped[path] = CLOSED
            self._stamps.add([f"{path}/."])

        for folder in folders:
            for at, below, names in walk_folders(os.path.join(self.root, folder), skip):
                path = os.path.relpath(at, self.root)
                left -= 1 + len(names)
                self._stamps.add([f"{path}/."])
                if left < 0:
                    below.clear()
                    self._stamps.complete = False
                elif ".git" in below or ".git" in names:
                    below.clear()
                elif not below and not names:
                    found.folders.append(path)

    def _forced(self) -> list[str]:
        """Return files that the user has put under version control although they are ignored; []
        when known.
        """
        stamp = _stamp(self._user.index)
        if not stamp or stamp == self._user_stamp:
            return []
        listed = _paths(self._user.ask("ls-files", "-z", "-c", "-i", "--exclude-standard"))
        self._user_stamp = stamp
        return [path for path in listed if os.path.lexists(os.path.join(self.root, path))]

    def _usual_umask(self, paths: Iterable[str]) -> int:
        """Return the permission bits that most files do not have."""
        seen: dict[int, int] = {}
        for path in islice(paths, 200):
            with suppress(OSError):
                mode = os.lstat(os.path.join(self.root, path)).st_mode
                if stat.S_ISREG(mode) and not mode & 0o111:
                    seen[mode & 0o666] = seen.get(mode & 0o666, 0) + 1
        return 0o666 & ~max(seen, key=lambda mode: seen[mode], default=0o644)

    def _sort(self, path: str, found: _Changes, modes: dict[str, int], umask: int) -> None:
        """Decide what becomes of a file that has changed, and note its permissions."""
        full = os.path.join(self.root, path)
        try:
            seen = os.lstat(full)
        except OSError:
            seen = None
        why = "" if seen is None else _why_not(full, seen)
        if seen is None or why or stat.S_ISDIR(seen.st_mode):
            del found.present[path]
            if path in found.tracked:
                found.gone[path] = None
            if why:
                found.skipped[path] = why
            return
        modes.pop(path, None)
        if stat.S_ISREG(seen.st_mode) and stat.S_IMODE(seen.st_mode) != usual_mode(
            seen.st_mode, umask
        ):
            modes[path] = stat.S_IMODE(seen.st_mode)
        self._racy[path] = seen.st_ctime_ns

    def _own(self, tree: str, before: str) -> None:
        """Copy the borrowed trees that are new since `before`: the user's git may delete them."""
        if not self._user.objects or tree == before:
            return
        found = self._differing(before, tree, "-t")
        new = {tree, *(head[3] for head, _ in found if head[1] == FOLDER)}
        borrowed = [name for name in new if not self._is_loose(name)]
        if borrowed:
            self._store_pack(borrowed, borrow=True)

    def _own_first(self, tree: str) -> None:
        """Put what is not in the user's last commit into a pack: his git may delete borrowed
        objects, and each loose object takes a block of the disk of its own.
        """
        if self._user.objects:
            last = self._user.ask("rev-parse", "-q", "--verify", "HEAD^{tree}").decode()
            known = [f"^{name}" for name in last.split()]
            self._store_pack([tree, *known], "--revs", borrow=True)
        else:
            self._store_pack([tree], "--revs", "--incremental")
        self._run(["prune-packed"], plain=True)

    def _is_loose(self, name: str) -> bool:
        """Return True for an object that was stored here since the last packing."""
        return os.path.exists(os.path.join(self.folder, "objects", name[:2], name[2:]))

    def _write_tree(self) -> str:
        prefix = os.path.relpath(self.root, self._top)
        words = ["write-tree", "--missing-ok", *([] if prefix == "." else [f"--prefix={prefix}/"])]
        try:
            return self._run(words, borrow=True).decode().strip()
        except CheckpointError:
            if prefix != "." and not self._run(["ls-files", "-z"]):
                return EMPTY_TREE
            raise

    # --- the last look, beside the index ----------------------------------------------------------

    def _store_last(self) -> None:
        record = msgspec.structs.asdict(self._last or TreeRecord("", 0))
        self._put(LAST, encode([_stamp(self._index), [record, self._racy]]))

    def _looked_ns(self) -> int:
        """Return when the last look ended; 0 for none."""
        try:
            return os.stat(os.path.join(self.folder, LAST)).st_mtime_ns
        except OSError:
            return 0

    def _load_last(self) -> None:
        """Read the record that belongs to the index; without it the index is built again."""
        try:
            with open(os.path.join(self.folder, LAST), "rb") as file:
                stamp, found = decode(file.read())
            if stamp and stamp == _stamp(self._index):
                self._last, self._racy = msgspec.convert(found, tuple[TreeRecord, dict[str, int]])
                self._latest = self._last
                self._stamps.add(_paths(self._run(["ls-files", "-z"])))
                return
        except (OSError, ValueError, msgspec.ValidationError):
            pass
        self.forget_index()

    def forget_index(self) -> None:
        """Delete the index and the last record, so that the next look reads the tree anew."""
        self._last, self._user_stamp, self._stamps = None, [], FolderStamps(self.root)
        self._racy.clear()
        self._remove_lock()
        for path in (self._index, os.path.join(self.folder, LAST)):
            with suppress(OSError):
                os.unlink(path)

    def _remove_lock(self) -> None:
        """Remove the lock of a git that was killed: nobody else uses this index."""
        with suppress(OSError):
            os.unlink(self._index + ".lock")

    # --- reading ----------------------------------------------------------------------------------

    def has(self, tree: str) -> bool:
        """Return True if a tree is still kept: named here, and stored here or in the user's
        repository, where a commit that was thrown away goes with its trees.
        """
        if tree == EMPTY_TREE:
            return True
        try:
            self._run(["cat-file", "-e", f"{tree}^{{tree}}"], plain=True, borrow=True)
        except CheckpointError:
            return False
        return os.path.exists(os.path.join(self.folder, "refs/kept", tree))

    def files(self, record: TreeRecord) -> dict[str, TreeFile]:
        """Return the files of a checkpoint by path. Raises `CheckpointError`."""
        if record.tree == EMPTY_TREE:
            return {}
        found = {}
        for line in self._run(
            ["ls-tree", "-r", "-z", "--full-tree", record.tree], plain=True, borrow=True
        ).split(b"\0")[:-1]:
            head, _, raw = line.partition(b"\t")
            mode, _, blob = head.decode().split(" ")
            kind, path = int(mode, 8), os.fsdecode(raw)
            usual = 0 if stat.S_ISLNK(kind) else usual_mode(kind, record.umask)
            found[path] = TreeFile(kind, blob, record.modes.get(path, usual))
        return found

    def changed(self, one: TreeRecord, other: TreeRecord) -> dict[str, tuple[str, str]]:
        """Return path -> (blob before, blob after) of what differs; '' for no file. Raises
        `CheckpointError`.

        Both are equal where only the permissions differ.
        """
        paths = {
            path: ("?", "?")
            for path in {*one.modes, *other.modes}
            if one.modes.get(path) != other.modes.get(path)
        }
        if one.tree != other.tree:
            for head, path in self._differing(one.tree, other.tree):
                before, after = (blob.strip("0") and blob for blob in head[2:4])
                paths[path] = (before, after)
        return paths

    def _differing(self, one: str, other: str, *options: str) -> Iterator[tuple[list[str], str]]:
        """Yield (modes and objects as `git diff-tree` tells them, path) of what differs."""
        words = ["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", *options]
        fields = self._run([*words, one, other], plain=True, borrow=True).split(b"\0")
        for head, raw in zip(fields[::2], fields[1::2], strict=False):
            yield head.decode().split(" "), os.fsdecode(raw)

    def store(self, data: bytes) -> str:
        """Store a content; return its blob."""
        words = ["hash-object", "-w", "--stdin"]
        return self._run(words, plain=True, given=data).decode().strip()

    def ignored(
        self, paths: Collection[str], then: Mapping[str, TreeFile], now: Container[str]
    ) -> set[str]:
        """Return those of `paths` that the rules of ignored files exclude in the checkpoint with
        the files `then`. Rules that are in no checkpoint, such as those above the root, are read
        from the work tree; `now` has the files of the present one. Raises `CheckpointError`,
        OSError.
        """
        if not paths:
            return set()
        import tempfile

        prefix = os.path.relpath(self.root, self._top)
        given = {f"./{os.path.join(prefix, path)}": path for path in paths}
        tree = os.path.realpath(tempfile.mkdtemp(dir=self.folder))
        try:
            for rules, text in self._rules(_rules_above(given), prefix, then, now):
                above, name = os.path.split(os.path.join(tree, rules))
                with open_folder(os.path.normpath(above), make=True) as folder:
                    opened = folder.open(name, os.O_CREAT | os.O_WRONLY, 0o600)
                    with open(opened, "wb") as file:
                        file.write(text)
            words = ["-C", tree, "--work-tree=.", "check-ignore", "-z", "--stdin", "--no-index"]
            process = self._start(words, plain=True, stdin=subprocess.PIPE)
            asked = b"".join(os.fsencode(path) + b"\0" for path in given)
            output = _finish(process, asked, codes=(0, 1))  # 1 for none
        finally:
            remove_tree(tree, ignore_errors=True)
        return {given[path] for path in _paths(output)}

    def _rules(
        self,
        paths: Iterable[str],
        prefix: str,
        then: Mapping[str, TreeFile],
        now: Container[str],
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (path, content) of those of the rules at `paths` that there are; see `ignored`."""
        blobs: dict[str, str] = {}
        for path in paths:
            known = os.path.relpath(path, prefix)
            if known in then:
                blobs[path] = then[known].blob
            elif known not in now:
                with suppress(OSError):
                    yield path, read(os.path.join(self._top, path))
        contents = self.contents(blobs.values())
        for path, (_, data) in zip(blobs, contents, strict=True):
            yield path, data or b""

    def contents(self, blobs: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield (blob, content) in the order given; None for one that no longer exists. Raises
        `CheckpointError`.
        """
        blobs = list(blobs)
        if not blobs:
            return
        process = self._start(
            ["cat-file", "--batch"], plain=True, stdin=subprocess.PIPE, borrow=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for blob in blobs:
                process.stdin.write(blob.encode() + b"\n")
                process.stdin.flush()
                head = process.stdout.readline().split()
                if not head:
                    raise CheckpointError(ENDED)
                if len(head) != 3:
                    yield blob, None
                    continue
                size = int(head[2])
                data = process.stdout.read(size)
                process.stdout.read(1)
                if len(data) != size:
                    raise CheckpointError(ENDED)
                yield blob, data
        except BrokenPipeError:
            raise CheckpointError(ENDED) from None
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()

    # --- exchange with a store --------------------------------------------------------------------

    def write_pack(self, trees: Iterable[str], known: str) -> str:
        """Write what `trees` have, and tree `known` has not, to a file; return its path, '' for
        nothing. The next call deletes the file. Raises `CheckpointError`, OSError.
        """
        folder = os.path.join(self.folder, OUTGOING)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        name = self._store_pack([*trees, f"^{known}"], "--revs", borrow=True, folder=OUTGOING)
        return f"{folder}/pack-{name}.pack" if name else ""

    def read_pack(self, pack: bytes) -> None:
        """Store the objects of a pack, unless one is damaged or refers to an object that is
        neither here nor in the user's repository. Raises `CheckpointError`.
        """
        self._run(["index-pack", "--stdin", "--strict"], plain=True, borrow=True, given=pack)

    def keep(self, tree: str) -> None:
        """Count a tree that was stored as a checkpoint. Raises OSError."""
        if tree != EMPTY_TREE:
            self._put(f"refs/kept/{tree}", tree + "\n")

    # --- space ------------------------------------------------------------------------------------

    def size_bytes(self) -> int:
        """Return the bytes of all stored objects."""
        found = 0
        for at, _, names in walk_folders(os.path.join(self.folder, "objects")):
            for name in names:
                with suppress(OSError):
                    found += os.lstat(os.path.join(at, name)).st_size
        return found

    def shrink(self, bytes_max: int) -> int:
        """Pack the objects; drop the oldest checkpoints until the rest fits; return how many
        were dropped.
        """
        kept, dropped = os.path.join(self.folder, "refs/kept"), 0
        self._pack()
        while self.size_bytes() > bytes_max:
            names = sorted(
                os.listdir(kept), key=lambda name: os.stat(os.path.join(kept, name)).st_mtime_ns
            )
            old = names[: (len(names) + 1) // 2 if len(names) > 1 else 0]
            if not old:
                break
            for name in old:
                os.unlink(os.path.join(kept, name))
            dropped += len(old)
            self._pack()
        return dropped

    def _pack(self) -> None:
        """Put what the checkpoints need into one pack, without what is borrowed, and delete the
        rest.
        """
        folder = os.path.join(self.folder, "objects/pack")
        name = self._store_pack(self._run(OWN, plain=True).decode().split())
        for old in os.listdir(folder):
            if not name or name not in old:
                os.unlink(os.path.join(folder, old))
        for at, _, names in walk_folders(os.path.join(self.folder, "objects")):
            if len(os.path.basename(at)) == 2:  # loose objects: what is needed is in the pack
                for loose in names:
                    os.unlink(os.path.join(at, loose))

    def _store_pack(
        self,
        objects: Iterable[str],
        *options: str,
        borrow: bool = False,
        folder: str = "objects/pack",
    ) -> str:
        """Store objects as a pack; return its name, '' for none. With `--revs`, all that trees
        have, and trees with `^` have not.
        """
        words = ["pack-objects", "-q", "--non-empty", *options]
        given = "".join(f"{name}\n" for name in objects).encode()
        words.append(os.path.join(self.folder, folder, "pack"))
        return self._run(words, plain=True, borrow=borrow, given=given).decode().strip()

    # --- git --------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """End the present look with `CheckpointError`; none succeeds any more. May be called by
        another thread.
        """
        self._is_given_up = True
        for process in list(self._started):
            process.kill()

    def _start(
        self,
        words: list[str],
        *,
        plain: bool = False,
        stdin: int = subprocess.DEVNULL,
        borrow: bool = False,
    ) -> "subprocess.Popen[bytes]":
        """Start git on the shadow repository. `plain`: without the work tree. `borrow`: with the
        user's objects.
        """
        own = {
            "GIT_DIR": self.folder,
            "GIT_INDEX_FILE": self._index,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            **NO_PROGRAMS,
        }
        if not plain:
            own["GIT_WORK_TREE"] = self._top
        if borrow and self._user.objects:
            own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = self._user.objects
        if self._is_given_up:
            raise CheckpointError("the session has ended")
        process = subprocess.Popen(
            [self._git, *words],
            cwd=self.folder if plain else self.root,
            env=self._environment | own,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if words[0] == "cat-file" else subprocess.PIPE,
            umask=0o077,
        )
        self._started.append(process)
        return process

    def _run(
        self,
        words: list[str],
        *,
        plain: bool = False,
        borrow: bool = False,
        given: bytes | None = None,
    ) -> bytes:
        stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
        return _finish(self._start(words, plain=plain, stdin=stdin, borrow=borrow), given)

    def _feed(self, words: list[str], paths: Iterable[str], *, borrow: bool = False) -> None:
        self._run(words, borrow=borrow, given=b"".join(os.fsencode(path) + b"\0" for path in paths))


def _stamp(path: str) -> list[int]:
    """Return what changes with a file, such as an index; [] where there is none, also for ''."""
    try:
        seen = os.stat(path)
    except OSError:
        return []
    return [seen.st_ino, seen.st_size, seen.st_mtime_ns]


def _rules_above(paths: Iterable[str]) -> set[str]:
    """Return the paths that rules of ignored files for `paths` may have."""
    folders = set[str]()
    for path in paths:
        above = os.path.dirname(path)
        while above and above not in folders:
            folders.add(above)
            above = os.path.dirname(above)
    return {os.path.normpath(os.path.join(folder, IGNORE)) for folder in folders}


def _literal(paths: Iterable[str]) -> list[str]:
    return [f":(literal){path}" for path in paths]


def _sort_changed(output: bytes, found: _Changes) -> None:
    """Sort what git names as changed into files that are there and gone ones."""
    fields = output.split(b"\0")
    for head, raw in zip(fields[::2], fields[1::2], strict=False):
        where = found.gone if head.endswith(b" D") else found.present
        where[os.fsdecode(raw)] = None
    found.tracked.update(found.present)


def _paths(output: bytes) -> list[str]:
    """Return the paths that git lists."""
    return [os.fsdecode(raw) for raw in output.split(b"\0")[:-1]]


def _why_not(path: str, seen: os.stat_result) -> str:
    """Return why a file is left out; '' when it is kept."""
    if stat.S_ISREG(seen.st_mode):
        if seen.st_size > FILE_BYTES_MAX:
            return f"larger than {FILE_BYTES_MAX >> 20} MB"
        return "" if os.access(path, os.R_OK) else UNREADABLE
    return (
        ""
        if stat.S_ISLNK(seen.st_mode) or stat.S_ISDIR(seen.st_mode)
        else "neither a file nor a link"
    )


def _finish(
    process: "subprocess.Popen[bytes]", given: bytes | None = None, codes: Container[int] = (0,)
) -> bytes:
    """Wait for git and return its output. Raises `CheckpointError`, also for an exit code that is
    not one of `codes`.
    """
    try:
        output, errors = process.communicate(given, timeout=GIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise CheckpointError(f"git took longer than {GIT_S:.0f} s") from None
    if process.returncode not in codes:
        last = (errors or b"").decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CheckpointError(f"git: {last or f'exit code {process.returncode}'}")
    return output


def _pattern(path: str) -> str:
    """Return the line of an exclude file for exactly this path."""
    return "/" + "".join("\\" + char if char in "\\*?[]!# " else char for char in path)
