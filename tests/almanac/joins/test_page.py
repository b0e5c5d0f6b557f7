"""The examples of docs/analyst.md run, and answer what the page shows."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

PAGE = (Path(__file__).parents[3] / "docs/analyst.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGE, re.M | re.S)
COINS = [NamedCoin("bitcoin", "BTC", "Bitcoin", 1), NamedCoin("ethereum", "ETH", "Ethereum")]


def at(day: int, hour: int) -> datetime:
    return datetime(2024, 3, day, hour, tzinfo=UTC)


UPGRADE = {"event_id": "evt_1", "title": "Upgrade", "coins": ("bitcoin",), "impact": 8.0}


def test_the_examples_answer_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    versions = [
        Known(**UPGRADE, known_from=at(1, 6), date=at(10, 12)),
        Known(**UPGRADE, version=2, known_from=at(9, 6), date=at(14, 12)),
    ]
    pulls = [at(day, 6) for day in range(1, 12)]
    publish_by_hand(tmp_path / "data/warehouse.duckdb", versions, pulls=pulls, coins=COINS)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert len(BLOCKS) == 5
    for code, shown in BLOCKS:
        exec(code, names)
        if shown:
            found = eval(code.strip().split("\n")[-1], names)
            assert isinstance(found, pd.DataFrame)
            assert found.to_string().split() == shown.split()
    assert list(names["past"].df().coin) == ["bitcoin"]
    written = pd.read_parquet("known.parquet")
    pd.testing.assert_frame_equal(written, names["reader"].read_pandas())
    pd.testing.assert_frame_equal(written, names["joined"], check_dtype=False)
    names["db"].close()
