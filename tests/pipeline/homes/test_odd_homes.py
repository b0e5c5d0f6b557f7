"""Homes whose paths contain characters with a meaning in DuckDB, SQLite, strftime or URLs."""

from pathlib import Path

import pytest

from tests.crashes.rotting import land_look_up
from tests.history.stories.handmade import SOURCE
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes.conftest import CopyTo
from warehouse.home import Home

LONG = pytest.mark.long
SEED = SOURCE.partition(":")[2]
TAKEN = (
    *("a*b", "[a]", "50%", "%d", "%(x)s", "a#b", "it's", 'q"q', " b c ", "ü", ";", "n\nl"),
    *("rank=1", "a:b", "$HOME", "{x,y}"),
)
ALL_IN_ONE = "*[a]50% %d#'\"ü;=\n$"
HIVE = "observed_date=2020-01-01"
"""A folder name in the form of a Hive partition: DuckDB would add a column of that name."""
REFUSED = ("a?b", "%20", "back\\slash")


@pytest.mark.parametrize(
    "name", [ALL_IN_ONE, HIVE, *(pytest.param(taken, marks=LONG) for taken in TAKEN)]
)
def test_every_command_works_in_a_home_of_an_odd_name(
    name: str, tmp_path: Path, every_kind: CopyTo, almanac: Almanac
) -> None:
    root = tmp_path / name
    land_look_up(every_kind(root), 51)
    # A home that the name as a pattern would match.
    every_kind(tmp_path / name.replace("*", "xx").replace("[a]", "a")) if "*" in name else None
    for words in (
        *(("merge",), ("sql", "FROM coin_snapshots"), ("verify", "--deep"), ("batches", "list")),
        *(("replay",), ("status",), ("verify", "--deep"), ("merge", "--json")),
    ):
        almanac(*words, home=str(root))
    answer = almanac("sql", "SELECT count(*) FROM batches", "--format", "csv", home=str(root))
    assert answer.stdout.split()[-1] == str(len(Home(root).landing.batch_ids()))


@LONG
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", [ALL_IN_ONE, *TAKEN])
def test_a_run_with_dagster_works_in_a_home_of_an_odd_name(
    name: str, tmp_path: Path, almanac: Almanac
) -> None:
    home = str(tmp_path / name)
    for words in (("run", "--days", "1"), ("verify", "--deep"), ("doctor",)):
        almanac(*words, home=home)


@pytest.mark.parametrize("name", REFUSED)
def test_a_home_that_would_be_taken_for_another_is_refused_before_anything_is_written(
    name: str, tmp_path: Path, almanac: Almanac
) -> None:
    for words in (("run",), ("merge",), ("status",), ("sql", "SELECT 1"), ("ui",)):
        done = almanac(*words, code=1, home=str(tmp_path / name / "home"))
        assert "set ALMANAC_HOME to a path without '?'" in " ".join(done.output.split())
    assert not (tmp_path / name).exists()
