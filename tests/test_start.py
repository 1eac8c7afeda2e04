"""What a start costs, by a measure that no other program on the machine changes: the modules that
are imported.

`python -m tests.test_start` writes the list anew, after a change that needs another module before
the first request.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables import record
from tests.test_architecture import LAZY_OWN

LIST = Path(__file__).parent / "start_modules.txt"
"""Modules of longrein that are imported when a headless run sends its first request, one a line."""
WITHOUT_BUBBLEWRAP = {"longrein.workspace.sandbox.landlock"}
"""Modules that are imported too, and not listed, where bubblewrap does not work."""
OTHER_MODULES_MAX = 360
"""Modules of Python and of other packages at that time; 348 with Python 3.11, of which `httpx2` and
what it needs are 133.
"""
START = """
import os, socket, sys, threading

server = socket.create_server(("127.0.0.1", 0))

def tell():
    server.accept()[0].recv(1)
    modules = "".join(f"{name}\\n" for name in sorted(sys.modules))
    os.write(1, modules.encode())
    os._exit(0)

home = sys.argv[1]
os.makedirs(f"{home}/.config/longrein")
with open(f"{home}/.config/longrein/config.toml", "w") as file:
    file.write(f'model = "mock/small"\\n[providers.mock]\\nwire = "anthropic"\\n')
    file.write(f'base_url = "http://127.0.0.1:{server.getsockname()[1]}"\\n')
    file.write('[models."mock/small"]\\nwindow = 200000\\nmax_output = 8192\\n')
threading.Thread(target=tell, daemon=True).start()
sys.argv[1:] = ["-p", "go"]
from longrein.__main__ import main

main()
"""


def modules_at_first_request(home: Path) -> list[str]:
    """Return the names of the modules that a headless run has imported when it sends its first
    request.
    """
    command = [sys.executable, "-P", "-c", START, str(home)]
    environment = record(
        PATH="/usr/bin:/bin", HOME=str(home), LONGREIN_STATE_DIR=str(home / "state")
    )
    done = subprocess.run(
        command,
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return sorted({*done.stdout.split()} - WITHOUT_BUBBLEWRAP)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return modules_at_first_request(tmp_path_factory.mktemp("home"))


def is_own(module: str) -> bool:
    return module.split(".", maxsplit=1)[0].startswith("longrein")


def test_only_listed_modules_are_imported_before_the_first_request(modules: list[str]) -> None:
    found, listed = set(filter(is_own, modules)), set(LIST.read_text().split())
    assert not found - listed, "import these inside the functions that use them"
    assert not listed - found, "these are imported later now: python -m tests.test_start"


def test_few_modules_of_others_are_imported_before_the_first_request(modules: list[str]) -> None:
    others = [name for name in modules if not is_own(name)]
    assert len(others) <= OTHER_MODULES_MAX, others


ANSWER_MODULES_MAX = 105
"""Modules that an answer which needs no session imports; 94 with Python 3.11, of which bare
Python has 30.
"""


@pytest.mark.parametrize("argv", ["--version", "--help", "--nope", "sesions", "help -p"])
def test_help_and_usage_errors_import_no_agent(argv: str, tmp_path: Path) -> None:
    code = (
        "import os, sys\nos._exit = sys.exit\ntry: from longrein.__main__ import main; main()\n"
        "except SystemExit: print('', *sys.modules, sep='\\n/', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *argv.split()],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = {line[1:] for line in done.stderr.splitlines() if line.startswith("/")}
    assert not found & {"asyncio", "msgspec", "longrein.entry_points", "longrein.agent"}
    assert len(found) <= ANSWER_MODULES_MAX, sorted(found)


INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "msgspec._core":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["sessions"]
from longrein.__main__ import main
main()
"""


def test_an_interrupt_while_modules_are_imported_ends_the_process_at_once() -> None:
    """As an exception, it would crash Python within the import of msgspec."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_the_terminal_imports_no_more_of_first_use_before_its_prompt() -> None:
    code = "import sys, longrein.entry_points, longrein.commands.interactive; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    found = set(done.stdout.split()) & LAZY_OWN
    assert found <= set(LIST.read_text().split())


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        LIST.write_text(
            "".join(f"{name}\n" for name in modules_at_first_request(Path(folder)) if is_own(name))
        )
