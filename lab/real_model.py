"""Small tasks for a small real model, with longrein and with the agents of others beside it.

    python -m lab.real_model URL [--agents longrein,pi] [--tasks fix,create] [--seeds 3]
    make real SETUP=SCRIPT FOLDER=FOLDER

URL is the address of a server of Chat Completions, such as http://127.0.0.1:8080/v1 of llama.cpp.
With `--setup SCRIPT`, URL is a folder: the script installs server and model there, and prints the
command that starts the server, and its address.

Each task runs headless in a fresh home and a fresh repository with one commit, at most 300 s; the
check decides, not the tone of the answer. A proxy on loopback records each request with the
server's own counts: tokens of the prompt, those that had to be read anew, and those of the output.
`--seeds N` plays each task N times more, at temperature 0.7. `--keep FOLDER` keeps homes, projects
and requests.
"""

import argparse
import http.client
import json
import re
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

from lab import beside
from lab.beside import LONGREIN, PI
from tests.standards.peers import CODEX, OPENCODE, environment
from tests.timeouts import wait_until

LIMIT_S = 300.0
MODEL = "qwen"
WINDOW = 32_768

# --- Tasks ----------------------------------------------------------------------------------------

Check = Callable[[Path, str], bool]
"""Whether a task is solved: the project, and the answer."""


class Task(NamedTuple):
    """A project, a prompt and a check."""

    name: str
    files: dict[str, str]
    prompt: str
    solved: Check


def prints(command: str, expected: str) -> Check:
    """The output of `command` holds the words of `expected`, in this order and alone."""

    def check(project: Path, _answer: str) -> bool:
        ran = subprocess.run(
            command,
            shell=True,
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        return ran.stdout.split() == expected.split()

    return check


def answers(*words: str) -> Check:
    """The answer holds all `words`; of words with `|` one."""
    return lambda _project, answer: all(
        any(one in answer.lower() for one in word.split("|")) for word in words
    )


def holds(name: str, text: str) -> Check:
    """File `name` holds `text`."""
    return lambda project, _: (project / name).is_file() and text in (project / name).read_text()


def both(*checks: Check) -> Check:
    """All of `checks`."""
    return lambda project, answer: all(check(project, answer) for check in checks)


def three_tasks(_project: Path, answer: str) -> bool:
    """Three tasks are told of; what was started stands in the requests."""
    return bool(answer)


LEDGER = (
    "class Ledger:\n    def __init__(self):\n        self.rows = []\n\n    def add(self, item):\n"
    "        self.rows.append(item)\n\n    def total(self):\n"
    "        return sum(row.price for row in self.rows)\n"
)
ITEM = (
    "class Item:\n    def __init__(self, name, price):\n"
    "        self.name = name\n        self.price = price\n"
)
TEST = 'from calc import add\n\nassert add(2, 3) == 5\nassert add(-1, 1) == 0\nprint("ok")\n'
VERSIONS = {f"agents/s0{n}.py": f"1.{n * 7 % 10}.{n}" for n in range(6)}
FIBONACCI = "0 1 1 2 3 5 8 13 21 34"
GIVEN = (
    Task(
        "question",
        {"shop/models.py": ITEM, "shop/book.py": LEDGER, "README.md": "# Shop\n"},
        "How many methods does the class Ledger have, and in which file is it defined? Answer in "
        "one sentence.",
        answers("book.py", "three|3"),
    ),
    Task(
        "fix",
        {"calc.py": "def add(a, b):\n    return a - b\n", "test_calc.py": TEST},
        "The test in test_calc.py fails. Fix calc.py so that it passes. Run the test with: python3 "
        "test_calc.py",
        both(prints("python3 test_calc.py", "ok"), holds("test_calc.py", "assert add(2, 3) == 5")),
    ),
    Task(
        "create",
        {},
        "Create a file fib.py that prints the first 10 Fibonacci numbers, one per line, starting "
        "with 0. Run it to check.",
        prints("python3 fib.py", FIBONACCI),
    ),
    Task(
        "background",
        {},
        'Start 3 background tasks: "sleep 2", "sleep 4", "sleep 6". Check their status.',
        three_tasks,
    ),
    Task(
        "read all",
        {
            name: "".join(f"def step_{n}():\n    return {n}\n\n" for n in range(60))
            + f'VERSION = "{version}"\n'
            for name, version in VERSIONS.items()
        },
        "Read every Python file in the agents/ directory one by one, then tell me the value of "
        "VERSION in each.",
        answers(*VERSIONS.values()),
    ),
)
OWN = (
    Task(
        "rename",
        {
            "area.py": "def sq(x):\n    return x * x\n",
            "main.py": "from area import sq\n\nprint(sq(7))\n",
        },
        "Rename the function sq to square, in area.py and in main.py.",
        both(
            prints("python3 main.py", "49"), holds("area.py", "square"), holds("main.py", "square")
        ),
    ),
    Task(
        "count",
        {"data/names.txt": "".join(f"name{n}\n" for n in range(37)), "notes.md": "# Notes\n"},
        "How many lines does data/names.txt have? Answer with the number.",
        answers("37"),
    ),
    Task(
        "find",
        {"a/one.py": "x = 1\n", "a/two.py": "# TODO: cache this\ny = 2\n", "b/three.py": "z = 3\n"},
        "Which file holds a TODO about the cache?",
        answers("two.py"),
    ),
    Task(
        "append",
        {"requirements.txt": "flask\nrequests\n", "app.py": "import flask\n"},
        "Add pytest to requirements.txt and keep what is there.",
        both(holds("requirements.txt", "pytest"), holds("requirements.txt", "flask\nrequests")),
    ),
    Task(
        "delete",
        {"tmp.log": "x\n", "keep.log": "y\n", "main.py": "print(1)\n"},
        "Delete tmp.log, and nothing else.",
        both(lambda project, _: not (project / "tmp.log").exists(), holds("keep.log", "y")),
    ),
    Task(
        "json",
        {"package.json": '{\n  "name": "shop",\n  "version": "1.4.2",\n  "private": true\n}\n'},
        "Set the version in package.json to 2.0.0.",
        both(holds("package.json", '"version": "2.0.0"'), holds("package.json", '"private": true')),
    ),
    Task(
        "run",
        {"sum.py": "print(sum(n * n for n in range(1, 38)))\n"},
        "Run sum.py with python3 and tell me what it prints.",
        answers("17575|17,575"),
    ),
    Task(
        "document",
        {"till.py": "def total(rows):\n    return sum(rows)\n"},
        "Create README.md with the title Till and one sentence about what till.py does.",
        holds("README.md", "Till"),
    ),
    Task(
        "median",
        {
            "stats.py": "def median(rows):\n    return rows[len(rows) // 2]\n",
            "check.py": "from stats import median\n\nassert median([3, 1, 2]) == 2\nprint('ok')\n",
        },
        "python3 check.py fails: median must sort its rows first. Fix stats.py and run it again.",
        both(prints("python3 check.py", "ok"), holds("check.py", "median([3, 1, 2]) == 2")),
    ),
    Task(
        "move",
        {
            "util.py": "def twice(x):\n    return 2 * x\n",
            "main.py": "from util import twice\n\nprint(twice(4))\n",
        },
        "Move util.py into a new folder lib and change the import in main.py so that it runs.",
        both(prints("python3 main.py", "8"), lambda project, _: (project / "lib/util.py").exists()),
    ),
)

# --- Agents ---------------------------------------------------------------------------------------


class Agent(NamedTuple):
    """How an agent is set up and called."""

    name: str
    program: Path
    set_up: Callable[[Path, str], None]
    words: Sequence[str]


def set_up_longrein(home: Path, url: str) -> None:
    folder = home / ".config/longrein"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'model = "served/{MODEL}"\n[providers.served]\nwire = "openai-chat"\nbase_url = "{url}"\n'
    )


def set_up_codex(home: Path, url: str) -> None:
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "served"\nmodel_context_window = {WINDOW}\n'
        f'[model_providers.served]\nname = "served"\nbase_url = "{url}"\nwire_api = "responses"\n'
    )


def set_up_pi(home: Path, url: str) -> None:
    (home / ".pi/agent").mkdir(parents=True)
    model = {"id": MODEL, "contextWindow": WINDOW, "maxTokens": 4_096}
    provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [model]}
    (home / ".pi/agent/models.json").write_text(json.dumps({"providers": {"served": provider}}))


def set_up_opencode(home: Path, url: str) -> None:
    beside.set_up_opencode(home, url.removesuffix("/v1"), MODEL, WINDOW, 4_096)


BYPASS = ("--permission-mode", "bypassPermissions")
AGENTS = (
    Agent("longrein", LONGREIN, set_up_longrein, (*BYPASS, "-p")),
    Agent("codex", CODEX, set_up_codex, ("exec", "-s", "danger-full-access")),
    Agent("pi", PI, set_up_pi, ("--provider", "served", "--model", MODEL, "-p")),
    Agent("opencode", OPENCODE, set_up_opencode, ("run", "-m", f"served/{MODEL}", "--auto")),
)

# --- The recording proxy --------------------------------------------------------------------------


class Exchange(NamedTuple):
    """A request and the counts of the server."""

    body: dict[str, Any]
    answer: str
    prompt: int
    """Tokens of the prompt."""
    read: int
    """Those that the server had to read: the rest was in its cache."""
    output: int


class Proxy(ThreadingHTTPServer):
    """Passes requests on to `target`, and records them."""

    daemon_threads = True

    def __init__(self, target: str, seed: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.seed, self.exchanges = urlsplit(target), seed, list[Exchange]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{self.target.path}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fields = json.loads(body or b"{}")
        if self.server.seed is not None:
            fields |= {"temperature": 0.7, "seed": self.server.seed, "top_k": 40}
            body = json.dumps(fields).encode()
        answer = self._pass_on(body).decode("utf-8", "replace")
        if "messages" in fields or "input" in fields:
            counts = [
                json.loads(row[5:]) for row in answer.split("\n") if row.startswith("data: {")
            ]
            counts += [json.loads(answer)] if answer.startswith("{") else []
            timings = next((row["timings"] for row in reversed(counts) if "timings" in row), {})
            read, cached = timings.get("prompt_n", 0), timings.get("cache_n", 0)
            said = timings.get("predicted_n", 0)
            self.server.exchanges.append(Exchange(fields, answer, read + cached, read, said))

    def _pass_on(self, body: bytes) -> bytes:
        target = self.server.target
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=LIMIT_S)
        try:
            kind = {"Content-Type": "application/json"} if body else {}
            connection.request(self.command, self.path, body or None, kind)
            response = connection.getresponse()
            self.send_response(response.status)
            self.send_header("Content-Type", response.getheader("Content-Type", ""))
            self.send_header("Connection", "close")
            self.end_headers()
            received = b""
            while piece := response.read1(65_536):
                received += piece
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            return b""
        finally:
            connection.close()
        return received


# --- Runs -----------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What came of a task."""

    solved: bool
    exchanges: list[Exchange]
    cpu_s: float
    end: str


def play(agent: Agent, task: Task, url: str, base: Path, seed: int | None) -> Run:
    """Play a task in an empty home and a fresh repository below `base`."""
    home, project = base / "home", base / "project"
    home.mkdir(parents=True)
    project.mkdir()
    for name, text in task.files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        (*who, "commit", "-qm", "begin", "--allow-empty"),
    ):
        subprocess.run(["git", *words], cwd=project, check=True)
    proxy = Proxy(url, seed)
    agent.set_up(home, proxy.url)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ran = subprocess.run(
            [str(agent.program), *agent.words, task.prompt],
            cwd=project,
            env=environment(home) | {"NO_PROXY": "127.0.0.1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        answer, end = ran.stdout, f"exit {ran.returncode}"
        (base / "stderr").write_text(ran.stderr)
    except subprocess.TimeoutExpired:
        answer, end = "", "time"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    proxy.shutdown()
    (base / "answer").write_text(answer)
    with (base / "requests.jsonl").open("w") as out:
        out.writelines(json.dumps(exchange._asdict()) + "\n" for exchange in proxy.exchanges)
    solved = task.solved(project, answer) and (
        task.solved is not three_tasks or _started(proxy.exchanges)
    )
    return Run(solved, proxy.exchanges, cpu_s, end)


def _started(exchanges: Sequence[Exchange]) -> bool:
    """Whether three tasks went to the background at once, and one was asked for."""
    said = "".join(exchange.answer for exchange in exchanges)
    calls = json.dumps(exchanges[-1].body) if exchanges else ""
    return calls.count("run_in_background") >= 3 and ("TaskOutput" in said or "TaskList" in said)


@contextmanager
def served(setup: str, folder: str) -> Iterator[str]:
    """Install and start the server of `setup` in `folder`; yield its address."""
    printed = subprocess.run(
        [setup, folder], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    command = next(line for line in printed if "--port" in line)
    url = re.findall(r"http://[\w.:]+/v1", "\n".join(printed))[0]
    with (Path(folder) / "server.log").open("wb") as log:
        server = subprocess.Popen(f"exec env {command}", shell=True, stdout=log, stderr=log)
        try:
            wait_until(lambda: _is_ready(url))
            yield url
        finally:
            server.terminate()
            server.wait()


def _is_ready(url: str) -> bool:
    try:
        with urlopen(url.replace("/v1", "/health")) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    """Play the tasks and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--setup", default="")
    parser.add_argument("--agents", default="")
    parser.add_argument("--tasks", default="")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with served(given.setup, given.url) if given.setup else nullcontext(given.url) as url:
        play_all(given, url)


def play_all(given: argparse.Namespace, url: str) -> None:
    """Play the tasks with each agent that is there, and print a row for each."""
    named = [name for name in given.agents.split(",") if name]
    wanted = [name for name in given.tasks.split(",") if name]
    base = given.keep or Path(tempfile.mkdtemp(prefix="real-"))
    print("| agent | task | solved | requests | prompt | read | output | CPU s | s | end |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for agent in AGENTS:
        if (named and agent.name not in named) or not agent.program.exists():
            continue
        runs = []
        for task in (*GIVEN, *OWN):
            for seed in [None, *range(1, given.seeds + 1)]:
                if wanted and task.name not in wanted:
                    continue
                begun = time.monotonic()
                at = base / f"{agent.name}-{task.name.replace(' ', '-')}-{seed or 0}"
                shutil.rmtree(at, ignore_errors=True)
                run = play(agent, task, url, at, seed)
                runs.append(run)
                sums = [
                    sum(column) for column in zip(*(one[2:] for one in run.exchanges), strict=True)
                ]
                prompt, read, output = sums or (0, 0, 0)
                name = f"{task.name}{f' ({seed})' if seed else ''}"
                took_s = time.monotonic() - begun
                print(
                    f"| {agent.name} | {name} | {'yes' if run.solved else 'no'} | "
                    f"{len(run.exchanges)} | {prompt:,} | {read:,} | {output:,} | {run.cpu_s:.1f} "
                    f"| {took_s:.0f} | {run.end} |",
                    flush=True,
                )
        firsts = [run.exchanges[0].prompt for run in runs if run.exchanges]
        print(
            f"| {agent.name} | all | {sum(run.solved for run in runs)} of {len(runs)} | first "
            f"request {max(firsts, default=0):,} tokens | | | | | | |",
            flush=True,
        )


if __name__ == "__main__":
    main()
