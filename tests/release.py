"""`make release`: the version that is released, and a try of each built package.

Runs with the standard library alone. Each package is installed into a bare environment, beside what
`requirements-run.lock` names, in an empty home and outside the repository: it says its version,
runs the demo and one prompt with a scripted model.
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
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) \((unreleased|\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)
"""A heading of CHANGELOG.md: the version, and the day of its release."""
ANSWER = "The package works."


def version() -> str:
    """Return the version of the source."""
    source = (ROOT / "src/longrein/__init__.py").read_text(encoding="utf-8")
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


class BareEnvironment:
    """A virtual environment with one built package, and an empty home."""

    def __init__(self, folder: Path, package: Path) -> None:
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
        lock = str(ROOT / "requirements-run.lock")
        self._call([sys.executable, "-m", "venv", str(folder / "environment")], os.environ)
        self._call([*pip, "-r", lock], os.environ)
        self._call([*pip, str(package)], os.environ)

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


def try_package(package: Path) -> None:
    """Install a package and use it. Exits with the reason when something fails."""
    with tempfile.TemporaryDirectory() as folder:
        installed = BareEnvironment(Path(folder), package.resolve())
        told = installed.run("--version").split()
        if told != ["longrein", version()]:
            sys.exit(f"release: {package.name} calls itself {' '.join(told)}")
        installed.run("demo")
        installed.plays(ANSWER)
        answer = installed.run("-p", "Do you work?").strip()
        if answer != ANSWER:
            sys.exit(f"release: {package.name} answers {answer!r}")
    print(f"release: {package.name} is installed, says {version()}, runs the demo and a prompt")


def main(words: Sequence[str]) -> None:
    if words == ["--version"]:
        check_version()
        return
    kinds = {"".join(Path(word).suffixes[-1:]) for word in words}
    if kinds != {".whl", ".gz"}:
        sys.exit(f"release: a wheel and a source distribution are needed, not {' '.join(words)}")
    for word in words:
        try_package(Path(word))


if __name__ == "__main__":
    main(sys.argv[1:])
