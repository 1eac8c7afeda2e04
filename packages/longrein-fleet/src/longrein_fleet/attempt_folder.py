"""Folder of an attempt: the copy of the task's folder, and what the agent changed in it."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from longrein.workspace import CollectingSink, CommandExit, CommandSpec, Confinement, Spawner
from longrein.workspace.git import quiet_environment
from longrein.workspace.sandbox import SessionSandbox, image_problem
from longrein_fleet.task_images import unpacking_words

GIT_S = 600.0
"""Time limit of one git command or copy."""
GIT_BYTES_MAX = 1 << 20
READY = "ready"
"""File that is there once the copy and its setup are complete."""
PATCH, IMAGE = "changes.patch", "image"
WORK, TESTS, SOURCES = "work", "tests", "sources.tar"
_FILLED = ("dev", "proc", "tmp")
"""Folders of an image that a sandbox fills."""
_SNAPSHOT = (
    'git init --quiet && if [ -n "$FLEET_BASE" ]; then git read-tree "$FLEET_BASE"; fi '
    '&& git add -A && git write-tree > "$GIT_DIR/base-tree"'
)
"""Files of the base revision are compared even where git ignores them."""
_DIFF = """
git add -A --ignore-errors; problem=$?
base=$(cat "$GIT_DIR/base-tree")
git diff --cached --binary --no-ext-diff --no-textconv "$base" > "$FLEET_PATCH" || exit
if git diff --cached --raw "$base" | grep -q '^:[0-7]* 160000 '; then
  echo "what lies in a repository inside is not in it"; exit 1
fi
exit $problem
"""


class FolderCommand(msgspec.Struct, frozen=True):
    """End of a command, and its output."""

    exit: CommandExit
    output: str

    @property
    def problem(self) -> str:
        """The problem in a few words; '' for exit code 0."""
        if self.exit.code == 0 and self.exit.cause == "exit":
            return ""
        how = f"exit code {self.exit.code}"
        if self.exit.cause == "timeout":
            how = "it took too long"
        elif self.exit.code is None:
            how = self.exit.message or self.exit.signal or self.exit.cause
        last = self.output.strip().rpartition("\n")[2][:300]
        return f"{how}: {last}" if last else how


class AttemptFolder:
    """The folder of one attempt: `work`, a git folder for comparison, files of output, and the
    image of a task that has one.
    """

    def __init__(
        self,
        path: str,
        spawner: Spawner,
        environ: Mapping[str, str],
        sandbox: SessionSandbox,
        image: str = "",
    ) -> None:
        """`image`: that of the task, '' for none."""
        self.path = path
        self.work = os.path.join(path, WORK)
        self._spawner = spawner
        self._sandbox = self._inside = sandbox
        self._image = image
        self.image = os.path.join(path, IMAGE) if image else ""
        """Folder that its commands see in place of this machine's files; '' for none."""
        if image:
            self._inside = sandbox.with_options(image=self.image)
        self._environ = {**quiet_environment(environ), "GIT_ALLOW_PROTOCOL": "file"}

    @property
    def is_ready(self) -> bool:
        """True if the copy and its setup are complete."""
        return os.path.exists(os.path.join(self.path, READY))

    def confine(self, *roots: str) -> Confinement | None:
        """Return how to confine a command in `work` that may change `roots` alone, and its image;
        None without a sandbox.
        """
        return self._inside.confine(roots, self.work, ())

    def confine_setup(self) -> Confinement | None:
        """Return how to confine the setup, which has the network; None without an image."""
        if not self._image:
            return None
        return self._inside.with_options(network=("*",)).confine((self.work,), self.work, ())

    async def unpack(self) -> str:
        """Make the image; return the problem, '' for none."""
        if not self._image:
            return ""
        os.mkdir(self.image)
        words = unpacking_words(self._environ, self._image, self.image)
        if problem := (await self._run(words, self.path)).problem:
            return f"the image {self._image} cannot be unpacked: {problem}"
        for name in _FILLED:
            os.makedirs(os.path.join(self.image, name), exist_ok=True)
        if problem := image_problem(self._inside.options, self._inside.rung):
            return problem
        spec = CommandSpec("true", self.work, self._environ, self.confine(self.work))
        problem = (await run_command(self._spawner, spec, GIT_S)).problem
        return f"no bash runs in the image {self._image}: {problem}" if problem else ""

    async def remove_image(self) -> None:
        """Remove the image: the results need none."""
        if self._image:
            await self._run(("rm", "-rf", "--", self.image), self.path)

    async def copy(self, folder: str, base: str) -> str:
        """Make `work` anew, from revision `base` of a repository or as a copy; return the
        problem, '' for none.
        """
        await self._run(("rm", "-rf", "--", self.path), "/")
        os.makedirs(self.path, mode=0o700)
        if not base:
            return (await self._run(("cp", "-a", "--", folder, self.work), self.path)).problem
        # neither shared nor linked: the sandbox hides the one, and the agent can change the other
        words = ("git", "clone", "--quiet", "--no-hardlinks", "--no-checkout")
        clone = (*words, "--", folder, self.work)
        problem = (await self._run(clone, self.path)).problem
        checkout = ("git", "checkout", "--quiet", "--detach", base)
        return problem or (await self._run(checkout, self.work)).problem

    async def pack(self, folder: str, base: str, tests: str) -> str:
        """Write a copy as of `copy`, and the folder `tests`, into one file; return the problem."""
        problem = await self.copy(folder, base)
        names = [WORK, TESTS] if tests else [WORK]
        if tests and not problem:
            copied = ("cp", "-a", "--", tests, os.path.join(self.path, TESTS))
            problem = (await self._run(copied, self.path)).problem
        packed = ("tar", "-cf", SOURCES, "--", *names)
        return problem or (await self._run(packed, self.path)).problem

    async def unpack_work(self, data: bytes) -> str:
        """Make the folder anew from what `pack` has written; return the problem."""
        await self._run(("rm", "-rf", "--", self.path), "/")
        os.makedirs(self.path, mode=0o700)
        return await self._unpack_sources(data, WORK)

    async def unpack_tests(self, data: bytes) -> str:
        """Add the tests of what `pack` has written, once no agent reads them; return the
        problem.
        """
        return await self._unpack_sources(data, TESTS)

    async def _unpack_sources(self, data: bytes, name: str) -> str:
        packed = os.path.join(self.path, SOURCES)
        with open(packed, "wb") as file:
            file.write(data)
        problem = (await self._run(("tar", "-xf", SOURCES, "--", name), self.path)).problem
        os.unlink(packed)
        return problem

    async def finish(self, base: str) -> str:
        """Remember what is in `work` now, so that the changes of the agent can be told; return
        the problem. `base`: see `copy`.
        """
        problem = (await self._compare(_SNAPSHOT, {"FLEET_BASE": base})).problem
        if not problem:
            with open(os.path.join(self.path, READY), "xb"):
                pass
        return problem

    async def write_patch(self) -> tuple[bool, str]:
        """Write the changes since `finish`; return whether there are any, and the problem."""
        path = os.path.join(self.path, PATCH)
        result = await self._compare(_DIFF, {"FLEET_PATCH": path})
        has_changes = os.path.exists(path) and os.path.getsize(path) > 0
        return has_changes, result.problem and f"the patch is not complete: {result.problem}"

    async def _compare(self, command: str, variables: Mapping[str, str] = {}) -> FolderCommand:
        """Run git on a git folder of our own: the one in `work` belongs to the agent.

        In the sandbox, because git runs programs that settings of nested repositories name.
        """
        environ = {
            **self._environ,
            "GIT_DIR": os.path.join(self.path, "comparison.git"),
            "GIT_WORK_TREE": self.work,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.path.join(self.work, ".git/objects"),
            **variables,
        }
        confinement = self._sandbox.confine((self.path,), self.work, ())
        spec = CommandSpec(command, self.work, environ, confinement)
        return await run_command(self._spawner, spec, GIT_S)

    async def _run(self, command: Sequence[str], cwd: str) -> FolderCommand:
        return await run_command(self._spawner, CommandSpec(command, cwd, self._environ), GIT_S)


async def run_command(spawner: Spawner, spec: CommandSpec, timeout_s: float) -> FolderCommand:
    """Run a short command and keep its output."""
    sink = CollectingSink()
    ended = await spawner.run(spec, sink=sink, timeout_s=timeout_s, output_bytes_max=GIT_BYTES_MAX)
    return FolderCommand(ended, sink.data.decode("utf-8", "replace"))


async def revision_of(
    spawner: Spawner, environ: Mapping[str, str], folder: str, base: str
) -> tuple[str, str]:
    """Return (commit, problem) of a folder; a plain folder has neither."""
    if not os.path.isdir(folder):
        return "", f"there is no folder {folder}"
    if not os.path.exists(os.path.join(folder, ".git")):
        problem = f"base is given, and {folder} is no git repository" if base else ""
        return "", problem
    words = ("git", "rev-parse", "--verify", "--quiet", f"{base or 'HEAD'}^{{commit}}")
    result = await run_command(
        spawner, CommandSpec(words, folder, quiet_environment(environ)), GIT_S
    )
    if result.problem:
        return "", f"the repository {folder} has no revision {base or 'HEAD'!r}"
    return result.output.strip(), ""
