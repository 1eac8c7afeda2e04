"""Real builds in the sandbox, with no setting: `python -m lab.campaigns.builds [NAME…]`.

Each build is a small project of its own in a temporary folder. Its command line runs confined by
the default options, without network, and with an empty home. It passes if the command exits with
0 and has made its artefact. A build whose programs are not on the search path is skipped. The
programs come from Debian, PyPI and npm; the compiler of TypeScript may lie in any folder of PATH.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandSpec, temporary_spawner
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.sandbox import SessionSandbox

LIMIT_S = 300.0
SHOWN_CHARS = 2_000
"""Length of the output that is shown of a failed build."""


class Build(NamedTuple):
    """One project and the command line that builds it."""

    needs: str
    """Programs that must be on the search path, with blanks between."""
    line: str
    """Command line; it runs in the project's folder."""
    made: str
    """File that it makes."""
    files: Mapping[str, str]
    """Name -> text of the project's files."""


class BuildResult(NamedTuple):
    """The end of one build."""

    state: str
    """`passed`, `failed` or `skipped`."""
    detail: str = ""
    """Output of a failed build, reason of a skipped one."""
    seconds: float = 0.0


# --- The projects ---------------------------------------------------------------------------------

_C = {"main.c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'}
_PYTHON = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n'
    'build-backend = "setuptools.build_meta"\n[project]\nname = "tiny"\nversion = '
    '"1"\n[tool.setuptools]\npackages = ["tiny"]\n',
    "tiny/__init__.py": "def double(number: int) -> int:\n    return number * 2\n",
    "tests/test_tiny.py": "from tiny import double\n\n\n"
    "def test_double(tmp_path):\n    assert double(2) == 4\n"
    '    (tmp_path / "x").write_text("x")\n',
}
_NODE = {
    "package.json": '{"name": "tiny", "version": "1.0.0", "private": true, "scripts": '
    '{"test": "node test.js", "build": "tsc -p ."}}\n',
    "test.js": "require('fs').writeFileSync('tested', 'yes')\n",
    "src/main.ts": "export const double = (number: number): number => number * 2\n",
    "tsconfig.json": '{"compilerOptions": {"outDir": "dist", "rootDir": "src", "types": []}, '
    '"include": ["src"]}\n',
    "double.test.mjs": "import test from 'node:test'\nimport { writeFileSync } from 'node:fs'\n"
    "test('writes', () => writeFileSync('tested', 'yes'))\n",
}
_GO = {
    "go.mod": "module example.org/tiny\n\ngo 1.19\n",
    "main.go": "package main\n\nfunc double(n int) int { return n * 2 }\n\n"
    "func main() { println(double(2)) }\n",
    "main_test.go": 'package main\n\nimport "testing"\n\nfunc TestDouble(t *testing.T) {\n'
    '\tif double(2) != 4 {\n\t\tt.Fatal("wrong")\n\t}\n}\n',
}
_RUST = {
    "Cargo.toml": '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/main.rs": 'fn main() { println!("hello"); }\n\n#[test]\nfn adds() { assert_eq!(1 + 1, 2) }'
    "\n",
}
_JAVA = {
    "src/main/java/Main.java": "public class Main {\n"
    '  public static void main(String[] a) throws Exception { new java.io.File("ran")'
    ".createNewFile(); }\n}\n"
}
_MAVEN = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>tiny</artifactId>
<version>1</version><packaging>jar</packaging><properties>
<maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target>
<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties></project>
"""
_ANT = (
    '<project name="tiny" default="jar"><target name="jar"><mkdir dir="out"/>'
    '<javac srcdir="src" destdir="out" includeantruntime="false"/>'
    '<jar destfile="tiny.jar" basedir="out"/></target></project>\n'
)
_HOOK = "#!/bin/sh\ntouch hooked\n"
_PRE_COMMIT = """repos:
- repo: local
  hooks:
  - {id: mark, name: mark, language: system, entry: touch hooked, pass_filenames: false}
"""
_OWN_VENV = (
    "python3 -m venv .venv && "
    "site=$(python3 -c 'import os, setuptools as s; print(os.path.dirname(s.__path__[0]))') && "
    "PYTHONPATH=$site .venv/bin/python -m pip install -q --no-deps --no-build-isolation -e . && "
    '.venv/bin/python -c \'import tiny; open("ran", "w")\''
)

BUILDS: Mapping[str, Build] = {
    "make": Build(
        "make gcc", "make", "main", {**_C, "Makefile": "main: main.c\n\tgcc -o main main.c\n"}
    ),
    "cmake": Build(
        "cmake make gcc",
        "cmake -S . -B out && cmake --build out && ctest --test-dir out",
        "out/main",
        {
            **_C,
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(tiny C)\n"
            "enable_testing()\nadd_executable(main main.c)\nadd_test(NAME main COMMAND main)\n",
        },
    ),
    "meson": Build(
        "meson ninja gcc",
        "meson setup out && meson compile -C out && meson test -C out",
        "out/main",
        {
            **_C,
            "meson.build": "project('tiny', 'c')\nmain = executable('main', 'main.c')\n"
            "test('main', main)\n",
        },
    ),
    "autotools": Build(
        "autoreconf automake make gcc",
        "autoreconf -i && ./configure && make distcheck",
        "tiny-1.tar.gz",
        {
            **_C,
            "configure.ac": "AC_INIT([tiny], [1])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\n"
            "AC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n",
            "Makefile.am": "bin_PROGRAMS = main\nmain_SOURCES = main.c\n",
        },
    ),
    "python build": Build(
        "pyproject-build", "pyproject-build --no-isolation", "dist/tiny-1-py3-none-any.whl", _PYTHON
    ),
    "pip install -e": Build("python3", _OWN_VENV, "ran", _PYTHON),
    "pip wheel": Build(
        "pip python3",
        "python3 -m pip wheel -q --no-deps --no-build-isolation -w out .",
        "out/tiny-1-py3-none-any.whl",
        _PYTHON,
    ),
    "pytest": Build(
        "pytest", "python3 -m pytest --junitxml=report.xml", ".pytest_cache/README.md", _PYTHON
    ),
    "tox": Build(
        "tox",
        "tox -q",
        ".tox/ran",
        {
            **_PYTHON,
            "tox.ini": "[tox]\nenvlist = py3\n[testenv]\nskip_install = true\n"
            "commands = python -c \"open('.tox/ran', 'w')\"\n",
        },
    ),
    "mypy": Build("mypy", "mypy --strict tiny", ".mypy_cache/.gitignore", _PYTHON),
    "ruff": Build("ruff", "ruff check . && ruff format .", ".ruff_cache/.gitignore", _PYTHON),
    "black": Build("black", "black tiny && touch ran", "ran", _PYTHON),
    "sphinx": Build(
        "sphinx-build",
        "sphinx-build -q -b html . out",
        "out/index.html",
        {"conf.py": "project = 'tiny'\n", "index.rst": "Tiny\n====\n\nText.\n"},
    ),
    "mkdocs": Build(
        "mkdocs",
        "mkdocs build -q",
        "site/index.html",
        {"mkdocs.yml": "site_name: tiny\n", "docs/index.md": "# Tiny\n"},
    ),
    "npm test": Build("npm node", "npm test", "tested", _NODE),
    "npm install": Build(
        "npm node", "npm install --offline --no-audit", "package-lock.json", _NODE
    ),
    "npm run build": Build("npm node tsc", "npm run build", "dist/main.js", _NODE),
    "npm pack": Build("npm node", "npm pack", "tiny-1.0.0.tgz", _NODE),
    "node --test": Build("node", "node --test", "tested", _NODE),
    "go build": Build("go", "go build -o tiny . && go vet ./...", "tiny", _GO),
    "go test": Build("go", "go test -coverprofile=cover ./...", "cover", _GO),
    "cargo build": Build("cargo", "cargo build --offline", "target/debug/tiny", _RUST),
    "cargo test": Build("cargo", "cargo test --offline", "target/debug/deps", _RUST),
    "javac": Build(
        "javac java", "javac -d out src/main/java/Main.java && java -cp out Main", "ran", _JAVA
    ),
    "maven": Build(
        "mvn mh_make",
        "mvn -o -B -q -s /etc/maven/settings-debian.xml package",
        "target/tiny-1.jar",
        {**_JAVA, "pom.xml": _MAVEN},
    ),
    "gradle": Build(
        "gradle javac",
        "gradle --offline jar",
        "build/libs/tiny.jar",
        {
            **_JAVA,
            "build.gradle": "apply plugin: 'java'\n",
            "settings.gradle": "rootProject.name = 'tiny'\n",
        },
    ),
    "ant": Build("ant javac", "ant", "tiny.jar", {**_JAVA, "build.xml": _ANT}),
    "git commit with a hook": Build(
        "git",
        "git add -A && git -c core.hooksPath=.githooks commit -q -m first && git show --stat",
        "hooked",
        {"file": "text\n", ".githooks/pre-commit": _HOOK},
    ),
    "pre-commit": Build(
        "pre-commit git",
        "git add -A && pre-commit run --all-files",
        "hooked",
        {"file": "text\n", ".pre-commit-config.yaml": _PRE_COMMIT},
    ),
    "shellcheck": Build(
        "shellcheck",
        "shellcheck build.sh && ./build.sh",
        "ran",
        {"build.sh": "#!/bin/sh\ntouch ran\n"},
    ),
    "perl": Build(
        "perl make",
        "perl Makefile.PL && make test",
        "blib/lib/Tiny.pm",
        {
            "Makefile.PL": "use ExtUtils::MakeMaker;\n"
            "WriteMakefile(NAME => 'Tiny', VERSION => '1');\n",
            "lib/Tiny.pm": "package Tiny;\nsub double { 2 * shift }\n1;\n",
            "t/double.t": "use Test::More tests => 1;\nuse Tiny;\nis(Tiny::double(2), 4);\n",
        },
    ),
    "rake": Build(
        "rake ruby", "rake test", "ran", {"Rakefile": "task(:test) { File.write('ran', 'yes') }\n"}
    ),
    "bundler": Build(
        "bundle ruby",
        "bundle install --local && bundle exec ruby -e 'File.write(%q(ran), %q(yes))'",
        "Gemfile.lock",
        {"Gemfile": "# no gem\n"},
    ),
    "php": Build(
        "php",
        "php -l main.php && php main.php",
        "ran",
        {"main.php": "<?php\nfile_put_contents('ran', sys_get_temp_dir());\n"},
    ),
    "composer": Build(
        "composer php",
        "composer dump-autoload",
        "vendor/autoload.php",
        {"composer.json": '{"autoload": {"psr-4": {"Tiny\\\\": "src/"}}}\n'},
    ),
}


# --- Running them ---------------------------------------------------------------------------------


def make_project(build: Build, root: Path) -> None:
    """Make the project's folder, a git repository, with its files."""
    for name, text in build.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
    plain = {"PATH": os.environ["PATH"]}
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=plain)


def make_home(home: Path) -> None:
    """Make a home that holds git's settings and leads to the user's Rust."""
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Tiny\nemail = tiny@example.org\n")
    for name in (".cargo", ".rustup"):
        folder = Path.home() / name
        if folder.is_dir():
            (home / name).symlink_to(folder)


async def run_build(build: Build, base: Path) -> BuildResult:
    """Run one build in the sandbox; `base` is an empty folder for project, home and state."""
    lacking = [name for name in build.needs.split() if shutil.which(name) is None]
    if lacking:
        return BuildResult("skipped", f"{', '.join(lacking)} is not installed")
    root, home, session = base / "tiny", base / "home", base / "state" / "sessions" / "s1"
    make_project(build, root)
    make_home(home)
    session.mkdir(parents=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    sandbox = SessionSandbox(
        SandboxOptions(),
        folder=str(session),
        home=str(home),
        state_dir=str(base / "state"),
        environ=environ,
        roots=[str(root)],
    )
    if not sandbox.rung.confines:
        return BuildResult("skipped", f"no sandbox works here: {sandbox.rung.reason}")
    return await _run_confined(build, sandbox, root, environ)


async def _run_confined(
    build: Build, sandbox: SessionSandbox, root: Path, environ: Mapping[str, str]
) -> BuildResult:
    output, began = CollectingSink(), _now()
    sandbox.begin([str(root)], others_run=False)
    async with temporary_spawner(environ, [str(root)]) as spawner:
        ended = await spawner.run(
            CommandSpec(
                build.line, str(root), dict(environ), sandbox.confine([str(root)], str(root), ())
            ),
            sink=output,
            timeout_s=LIMIT_S,
            output_bytes_max=1 << 22,
        )
    sandbox.end([str(root)])
    moved = sandbox.take_report().moved
    text = output.data.decode("utf-8", "replace")[-SHOWN_CHARS:]
    if moved:
        return BuildResult("failed", f"{text}\nmoved away: {moved}", _now() - began)
    if ended.code == 0 and (root / build.made).exists():
        return BuildResult("passed", "", _now() - began)
    return BuildResult("failed", f"{text}\nexit code {ended.code}", _now() - began)


def _now() -> float:
    return time.monotonic()


def main(names: list[str]) -> int:
    """Run the named builds, or all; return 1 when one of them failed."""
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name in names or BUILDS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            result = asyncio.run(run_build(BUILDS[name], Path(folder)))
        count[result.state] += 1
        print(f"{result.state:8} {result.seconds:6.1f} s  {name}", flush=True)
        if result.detail:
            print("    " + result.detail.strip().replace("\n", "\n    "))
    print(", ".join(f"{number} {state}" for state, number in count.items()))
    return int(count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
