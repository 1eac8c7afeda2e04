"""`make release`: the version that is released, and a try of the built packages.

Runs with the standard library alone. The wheels, then the source distributions, are installed into
bare environments in an empty home and outside the repository. The engine comes with nothing but
`msgspec` and prepares a list. The agent comes with it, beside what `requirements-run.lock` names:
it says its version, runs the demo and one prompt with a scripted model. The fleet, without Ray,
says what it can do.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "packages"
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) \((unreleased|\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)
"""A heading of CHANGELOG.md: the version, and the day of its release."""
ANSWER = "The package works."


def version() -> str:
    """Return the version of the source."""
    source = (PACKAGES / "longrein/src/longrein/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    assert found is not None
    return found[1]


def changes() -> list[tuple[str, str]]:
    """Return (version, day) of each heading of the changelog, the newest first."""
    return HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def check_version() -> None:
    """Compare the version of the source with the newest heading of the changelog."""
    newest, day = changes()[0]
    if newest != version():
        sys.exit(f"release: the source is {version()}, the newest of CHANGELOG.md is {newest}")
    if day == "unreleased":
        print(f"release: CHANGELOG.md calls {newest} unreleased: name the day before you upload it")


LISTS = """
import longrein_context
engine = longrein_context.engine(window=100_000, max_output=8_000)
chat = [{"role": "user", "content": "Hello."}]
assert engine.prepare(chat) == chat
"""
"""What the engine does without the agent."""


class BareEnvironment:
    """A virtual environment with some built packages, and an empty home."""

    def __init__(self, folder: Path, packages: Sequence[Path], requirements: Sequence[str]) -> None:
        """`requirements`: what pip is told to install first, without dependencies."""
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.bin = folder / "environment/bin"
        self.environ = {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "LONGREIN_SANDBOX_MODE": "off",
        }
        pip = [str(self.bin / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        self._call([sys.executable, "-m", "venv", str(folder / "environment")], os.environ)
        self._call([*pip, *requirements], os.environ)
        self._call([*pip, *map(str, packages)], os.environ)

    def python(self, program: str) -> None:
        """Run a program in Python."""
        self._call([str(self.bin / "python"), "-c", program], self.environ)

    def run(self, *words: str) -> str:
        """Run the installed command; return its output."""
        return self._call([str(self.bin / "longrein"), *words], self.environ)

    def plays(self, text: str) -> None:
        """Make a scripted model the model of the settings, which answers with `text`."""
        script = self.home / "script.json"
        script.write_text(json.dumps({"turns": [{"text": text}]}))
        settings = self.home / ".config/longrein"
        settings.mkdir(parents=True)
        (settings / "config.toml").write_text(
            f'model = "play/one"\n[providers.play]\nwire = "scripted"\nbase_url = "{script}"\n'
        )

    def _call(self, words: Sequence[str], environ: os._Environ[str] | dict[str, str]) -> str:
        done = subprocess.run(
            words,
            cwd=self.project,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"release: {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def try_packages(context: Path, agent: Path, fleet: Path) -> None:
    """Install the packages and use them. Exits with the reason when something fails."""
    lock = ROOT / "requirements-run.lock"
    pin = re.search(r"^msgspec==\S+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert pin is not None
    with tempfile.TemporaryDirectory() as folder:
        BareEnvironment(Path(folder), [context], [pin[0]]).python(LISTS)
    print(f"release: {context.name} prepares a list beside {pin[0]} alone")
    with tempfile.TemporaryDirectory() as folder:
        installed = BareEnvironment(Path(folder), [context, agent, fleet], ["-r", str(lock)])
        told = installed.run("--version").split()
        if told != ["longrein", version()]:
            sys.exit(f"release: {agent.name} calls itself {' '.join(told)}")
        installed.run("demo")
        installed.plays(ANSWER)
        answer = installed.run("-p", "Do you work?").strip()
        if answer != ANSWER:
            sys.exit(f"release: {agent.name} answers {answer!r}")
        installed.run("fleet", "--help")
    print(f"release: {agent.name} is installed, says {version()}, runs the demo and a prompt")


def main(words: Sequence[str]) -> None:
    if words == ["--version"]:
        check_version()
        return
    for kind in (".whl", ".gz"):
        built = {
            Path(word).name.split("-", maxsplit=1)[0]: Path(word).resolve()
            for word in words
            if word.endswith(kind)
        }
        names = ("longrein_context", "longrein", "longrein_fleet")
        if missing := [name for name in names if name not in built]:
            sys.exit(f"release: the {kind} of {missing[0]} is missing")
        try_packages(*(built[name] for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])
