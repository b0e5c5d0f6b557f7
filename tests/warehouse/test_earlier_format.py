from pathlib import Path

import duckdb
import pytest

from tests.warehouse.landed_days import history, land
from warehouse.history.merge import merge
from warehouse.home import Home


def test_a_home_of_an_earlier_format_is_rebuilt_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, other = Home(tmp_path / "home"), Home(tmp_path / "other")
    for each in (home, other):
        for day in range(3):
            land(each, day)
    merge(other)
    (home.root / "lake" / "event_changes").mkdir(parents=True)
    (home.root / ".spare-warehouse.duckdb").write_bytes(b"spare")
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute("CREATE TABLE event_versions (event_id VARCHAR)")
        connection.execute("CREATE SCHEMA _almanac")
        connection.execute("CREATE TABLE _almanac.published (day DATE, versions INTEGER)")
    report = merge(home)
    assert len(report.outcomes) == 3 and report.is_published
    assert report.rebuilt is not None and report.notes == [report.rebuilt]
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("Another version of Almanac made the warehouse") and "3 batches" in line
    assert not (home.root / "lake").exists()
    assert not (home.root / ".spare-warehouse.duckdb").exists()
    assert history(home) == history(other)
    assert merge(home).rebuilt is None
