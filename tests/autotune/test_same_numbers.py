"""Every text calls the time of the best by one number, with one interval."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

import tilewright as tw
from tilewright.autotune.session.events import Event
from tilewright.autotune.show.display import LiveDisplay
from tilewright.cli import main
from tilewright.cli.report import print_results

from .children import QUICK
from .kernels import matmul

TARGET = "cpu -threads=1"


def test_the_time_of_the_best_is_one_number_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuning.db"
    events: list[Event] = []
    with tw.TuningDatabase(path) as db:
        result = tw.tune(
            matmul(), TARGET, database=db, trials=6, callback=events.append, config=QUICK
        )
        explained = str(tw.explain(matmul(), TARGET, db))
    assert result.best is not None
    assert result.best.time.interval is not None, "it was in the finals"
    time = str(result.best.time)
    number, interval = re.fullmatch(r"(.+ \w+) \((.+)\)", time).groups()  # type: ignore[union-attr]
    assert f"best {time} after" in str(result)
    assert f"best {time}" in repr(result)
    found = explained.partition("found: ")[2].partition("\n")[0]
    assert found.startswith(f"schedule {result.best.schedule_id[:12]}, ")
    assert found.endswith(f", {time}")

    with LiveDisplay(Console(file=(shown := io.StringIO()), width=200)) as display:
        for event in events:
            display(event)
    lines = shown.getvalue().splitlines()
    assert f"-> {result.best.schedule_id[:12]}  " in shown.getvalue()
    assert lines[-1].startswith(f"best {time}, ")

    print_results([result])
    assert re.search(rf"^best {re.escape(time)} after ", capsys.readouterr().out, re.MULTILINE)

    def command(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["tilewright", "db", "best", "--db", str(path), *words])
        with pytest.raises(SystemExit):
            main.main()
        return capsys.readouterr().out

    with closing(sqlite3.connect(path)) as connection:
        (row,) = connection.execute("SELECT trials, elapsed FROM sessions")
    assert row == (6, result.seconds)

    table = command()
    assert number in table
    assert interval in table
    (best,) = json.loads(command("--json"))
    assert best["seconds"] == result.best.seconds
    assert tuple(best["interval"]) == result.best.time.interval
    gains = {name: gain["ratio"] for name, gain in best["gains"].items()}
    assert gains == {name: gain.ratio for name, gain in result.gains.items() if not gain.at_least}
