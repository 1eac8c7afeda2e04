"""`longrein doctor`: findings and assumptions."""

from pathlib import Path

import pytest

from longrein.app.run_context import read_run_context
from longrein.commands.doctor import doctor
from longrein.options import Options
from tests.tables import cases

GIVEN = "price_input = 4\nprice_output = 20\n"
KNOWN = f"{GIVEN}price_cache_read = 0.4\n"


@cases(
    "figures said",
    ("window = 9000\n", "not known: no money limit; give price_input and price_output under"),
    (GIVEN, "cache prices are not known: reading is taken for 0.1 of the input price"),
    (KNOWN, ""),
)
def test_prices_that_are_not_known_are_told(
    figures: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / ".config/longrein/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        'model = "mock/m"\n[providers.mock]\nwire = "openai-chat"\nbase_url = '
        f'"http://127.0.0.1:9/v1"\n[models."mock/m"]\n{figures}'
    )
    options = Options(state_dir=str(tmp_path / "state"))
    doctor(
        read_run_context(options, {"HOME": str(tmp_path), "PATH": "/usr/bin"}, folder=str(tmp_path))
    )
    shown = capfd.readouterr().out
    prices = [line for line in shown.splitlines() if line.split()[1] == "prices"]
    assert [said in line for line in prices] == ([True] if said else [])
