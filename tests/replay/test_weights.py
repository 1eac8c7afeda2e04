"""Own weights of the clearing policy: fitted, checked, compared, used; and never a reason to
change the past.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab import fit, simulate
from lab.fit import write_weights
from lab.replay import POLICIES, PolicyReplay, read_recording
from lab.replay.generated import write_sessions
from lab.shipped_weights import module_text
from lab.simulate import budget_of
from longrein.config.clearing_weights import (
    Fold,
    Tables,
    Weights,
    read_weights,
    weights_in_use,
)
from longrein_context import fold, render, use_tables
from longrein_context.clearing.weights import TABLES
from longrein_context.events import AnyEvent, Entry, UsageError

FORGETFUL: Tables = {name: {**table, "bias": (-9.0,)} for name, table in TABLES.items()}
"""Weights that take next to nothing for needed."""


@pytest.fixture(autouse=True)
def _shipped_again() -> Iterator[None]:
    yield
    use_tables(TABLES)


class Recorded(PolicyReplay):
    """A replay that keeps its log."""

    def tell(self, event: AnyEvent, at_us: int = 0) -> int:
        seq = super().tell(event, at_us)
        self.__dict__.setdefault("log", []).append(Entry(seq, at_us or seq - 1, event))
        return seq


def replay_with(
    folder: Path, tables: Tables
) -> tuple[list[Entry], list[dict[int, str | None]], Recorded]:
    """Replay a generated session with these weights."""
    file = sorted(write_sessions(folder, 3).iterdir())[2]
    use_tables(tables)
    replay = Recorded(
        read_recording(file.name, file.read_bytes()),
        POLICIES["default"],
        budget_of("anthropic", 64_000),
    )
    shown = [change.show for change in replay.changes()]
    return replay.__dict__["log"], shown, replay


def test_other_weights_decide_otherwise_and_change_nothing_that_was_sent(tmp_path: Path) -> None:
    log, shown, replay = replay_with(tmp_path, TABLES)
    assert any(shown)
    assert replay_with(tmp_path, FORGETFUL)[1] != shown
    for end in (
        len(log) // 2,
        len(log),
    ):  # resumed in the middle and at the end, with other weights
        views = []
        for tables in (TABLES, FORGETFUL):
            use_tables(tables)
            views.append(render(fold(log[:end]), replay.budget).items)
        assert views[0] == views[1]
        use_tables(FORGETFUL)
        state = fold(log[:end])
        POLICIES["default"](state, replay.budget, 0)
        assert render(state, replay.budget).items == views[0], (
            "a decision alone changes nothing either"
        )


# --- The file -------------------------------------------------------------------------------------


def changed(**fields: Any) -> bytes:
    value = json.loads(msgspec.json.encode(Weights(TABLES)))
    return json.dumps({**value, **fields}).encode()


SHORT = {**TABLES, "line": {**TABLES["line"], "refs": (0.0,)}}
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no file of weights"),
    "not JSON": (b"LINE = {}", "no file of weights"),
    "not UTF-8": (b"\xff\xfe", "no file of weights"),
    "a list": (b"[]", "no file of weights"),
    "deep": (b"[" * 100_000, "no file of weights"),
    "text for a weight": (changed(tables={"line": {"bias": ["x"]}}), "no file of weights"),
    "a later format": (changed(format=2), "of another version"),
    "a term less": (changed(tables={"line": {"bias": [1.0]}, "word": {}}), "of another version"),
    "a weight less": (changed(tables=SHORT), "of another version"),
    "a fold of another version": (
        changed(folds=[{"without": ["a"], "tables": SHORT}]),
        "of another version",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_or_outdated_file_is_one_line_and_the_shipped_weights_are_used(
    tmp_path: Path, case: str
) -> None:
    data, why = BROKEN[case]
    path = tmp_path / "weights.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=why) as raised:
        read_weights(str(path))
    assert "\n" not in str(raised.value)
    tables, notes = weights_in_use(str(path), {}, str(tmp_path))
    assert tables is TABLES
    assert [
        why in note and "until then the shipped weights are used" in note for note in notes
    ] == [True]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / "w.json")
    write_weights(path, Weights(FORGETFUL, (Fold(("a", "b"), TABLES),), "made"))
    found = read_weights(path)
    assert found.tables == FORGETFUL
    assert (found.without("a"), found.without("c")) == (TABLES, FORGETFUL)
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    assert weights_in_use("~/w.json", home, str(tmp_path)) == (FORGETFUL, ())
    assert weights_in_use("", home, str(tmp_path)) == (TABLES, ())
    with pytest.raises(UsageError, match="cannot be written"):
        write_weights(str(tmp_path / "none" / "w.json"), found)


def test_the_module_of_the_shipped_weights_is_printed_as_it_stands() -> None:
    names: dict[str, Any] = {}
    exec(module_text(TABLES, "about"), names)
    assert names["TABLES"] == TABLES


# --- The command ----------------------------------------------------------------------------------


def test_weights_are_fitted_shown_and_never_in_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numpy", reason="make library")
    monkeypatch.setenv("LONGREIN_STATE_DIR", str(tmp_path / "state"))
    folder, out = str(write_sessions(tmp_path / "s", 3)), str(tmp_path / "w.json")
    assert fit.main([folder, "--out", out]) == 0
    found = read_weights(out)
    assert [fold.without for fold in found.folds] == [(f"generated-0{n}",) for n in range(3)]
    assert len({str(fold.tables) for fold in found.folds} | {str(found.tables)}) == 4
    capfd.readouterr()
    words = [folder, "--weights", out, "--window", "64000", "--wire", "anthropic"]
    assert simulate.main(words) == 0
    table = capfd.readouterr().out.splitlines()
    assert [row.split("  ")[0] for row in table[1:9]] == ["default"] * 4 + ["own weights"] * 4
    assert table[9] == "window 64,000, prices anthropic, wire anthropic"
    assert (
        "each of 3 sessions that they were fitted on is shown with weights that were fitted "
        "without it" in table[10]
    )


WRONG: dict[str, tuple[Callable[[list[str]], int], list[str], str]] = {
    "an empty folder": (fit.main, [".", "--out", "w"], "no file in it ends with .jsonl"),
    "weights that are none": (
        simulate.main,
        [".", "--weights", "none"],
        "the weights none cannot be read",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    if case == "an empty folder":
        pytest.importorskip("numpy", reason="make library")
    run, words, why = WRONG[case]
    monkeypatch.setenv("LONGREIN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    told = capfd.readouterr().err
    assert why in told
    assert told.count("\n") == 1


def test_without_numpy_fit_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGREIN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setitem(__import__("sys").modules, "lab.replay.weight_fit", None)
    sessions = str(write_sessions(tmp_path / "s", 1))
    assert fit.main([sessions, "--out", str(tmp_path / "w")]) == 2
    assert "numpy, which is not installed: make library" in capfd.readouterr().err
