"""`longrein context --as-sent N`: a request as the model got it."""

import json
import re

from tests.e2e.harness import CliHarness, call, calls, says


def test_a_request_is_printed_as_it_was_sent(cli: CliHarness) -> None:
    (cli.project / "a.txt").write_text("alpha\x1b[31m\n")
    cli.plays(calls(call("Read", file_path="a.txt")), says("It says alpha."))
    assert cli.run("-p", "What does a.txt say?").code == 0
    (session,) = cli.sessions
    first, second = (cli.run("context", session, "--as-sent", n).text for n in ("1", "2"))
    assert "--- user, r" in first
    assert "What does a.txt say?" in first
    assert "--- call Read" not in first, "what came later is not shown"
    assert '{"file_path":"a.txt"}' in second
    assert "--- result Read, ok, r" in second
    assert "alpha" in second
    assert "\x1b" not in second
    assert second.startswith("--- system\n")
    none = cli.run("context", session, "--as-sent", "3")
    assert none.code == 2
    assert "the session has 2 requests; there is no 3" in none.err


def test_readings_are_named_by_file_and_lines_also_by_the_inspector(cli: CliHarness) -> None:
    (cli.project / "src").mkdir()
    (cli.project / "src/app.py").write_text("".join(f"value_{n} = {n}\n" for n in range(1, 121)))
    deep = cli.project / "a/rather/long/path/of/folders/to/one/small"
    deep.mkdir(parents=True)
    (deep / "module.py").write_text("x = 1\n" * 90)
    reads = [
        call("Read", file_path="src/app.py", offset=40, limit=41),
        call("Read", file_path=str(cli.project / "src/app.py"), offset=100),
        call("Read", file_path=str(deep / "module.py"), limit=9),
        call("Glob", pattern="*.py"),
    ]
    cli.plays(calls(*reads), says("Read."))
    assert cli.run("-p", "Read.").code == 0
    shown = json.loads(cli.run("context", cli.session, "--json").text)
    names = [(one["kind"], one["begins"]) for one in shown["items"] if one["name"] == "Read"][1:]
    path = "a/rather/long/path/of/folders/to/one/small/module.py:1–9"
    assert names == [
        ("call", "src/app.py:40–80"),
        ("call", "src/app.py"),
        ("call", path),
        ("result", "src/app.py:40–80"),
        ("result", "src/app.py:100–120"),
        ("result", path),
    ]
    assert '{"pattern":"*.py"}' in [one["begins"] for one in shown["items"]]
    rows = cli.run("context", cli.session).text
    assert "Read: src/app.py:40–80\n" in rows
    assert f"Read: …{path[-35:]}\n" in rows
    page = cli.run("inspect", "--no-open", "--out", str(cli.folder / "page.html"))
    assert page.code == 0
    items = re.findall(r'"begins":"([^"]*)"', (cli.folder / "page.html").read_text())
    assert [name for name in items if name.startswith(("src/", "a/"))] == [n for _, n in names]


def test_instruction_files_are_named_beside_the_environment(cli: CliHarness) -> None:
    """The environment has no file; the first file is the text after it."""
    (cli.home / ".config/longrein/AGENTS.md").write_text("Write plain English.\n")
    (cli.project / "AGENTS.md").write_text("Run make test. " * 40)
    cli.run("trust")
    cli.plays(says("Hello."))
    assert cli.run("-p", "Hello").code == 0
    shown = json.loads(cli.run("context", cli.session, "--json").text)
    files = {one["path"]: one["tokens"] for one in shown["memoryFiles"]}
    own, project = str(cli.home / ".config/longrein/AGENTS.md"), str(cli.project / "AGENTS.md")
    assert list(files) == [own, project]
    assert files[project] > 3 * files[own] > 0
    cli.run("inspect", "--no-open", "--out", str(cli.folder / "page.html"))
    page = (cli.folder / "page.html").read_text()
    rows = re.findall(r'"kind":"prefix".*?"text":"(.*?)".*?"title":"(.*?)"', page)[1:]
    titles = [title for text, title in rows]
    assert titles[0] == "environment"
    cut = [title.removesuffix("…") for title in titles[1:3]]  # a long path is cut
    assert all(path.startswith(title) for path, title in zip((own, project), cut, strict=True))
    assert "Write plain English." in rows[1][0]
    assert "Run make test." in rows[2][0]
