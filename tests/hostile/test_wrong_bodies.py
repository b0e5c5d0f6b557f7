"""Each wrong body on its whole way: landed, merged, published; and what the next good day says."""

import re

import pytest

from tests.hostile.cases import arrived
from tests.hostile.conftest import ALL, Seen
from warehouse import queries
from warehouse.change_log import ChangeLog
from warehouse.verify import verify


@pytest.mark.parametrize("name", ALL)
def test_what_becomes_of(name: str, seen: Seen) -> None:
    case, batch = seen.cases[name], seen.batch(name)
    told = " ".join(str(part) for part in (batch["why"], batch["flagged"], *notes(seen, name)))
    assert (batch["status"], told) == (case.status, told)
    assert re.search(case.says, told)
    assert batch["arrived"] == arrived(case)
    assert (batch["rejected"], batch["ignored"]) == (case.rejected, case.ignored)
    assert batch["duplicates"] == case.duplicates
    if batch["status"] == "merged":
        assert batch["good"] + batch["rejected"] + batch["ignored"] == batch["arrived"]


@pytest.mark.parametrize("name", ALL)
def test_each_rejected_row_is_kept_with_a_reason(name: str, seen: Seen) -> None:
    query = "SELECT position, reason, raw FROM rejects WHERE batch_id = $batch_id ORDER BY ALL"
    with queries.connected(seen.home.warehouse) as connection:
        rows = connection.execute(query, {"batch_id": seen.batch_ids[name]}).fetchall()
    assert len(rows) == seen.cases[name].rejected
    assert len({position for position, _, _ in rows}) == len(rows)
    assert all(reason and raw is not None for _, reason, raw in rows)


@pytest.mark.parametrize("moment", [0, 1], ids=["after the wrong day", "after the next good one"])
def test_the_tables_are_those_of_a_home_that_never_saw_it(moment: int, seen: Seen) -> None:
    assert seen.told[moment] == seen.expected[moment]


def test_nothing_is_lost_and_a_replay_says_the_same(seen: Seen) -> None:
    assert {one.check: one.wrong for one in verify(seen.home, deep=True) if not one.holds} == {}
    assert seen.home.landing.pending() == []
    assert set(seen.batch_ids.values()) <= set(seen.home.landing.batch_ids())


def notes(seen: Seen, name: str) -> list[str]:
    days = ChangeLog(seen.home.lake, seen.home.state / "change_log.json").days()
    (record,) = [
        batches[seen.batch_ids[name]]
        for batches in (day.batches() for day in days)
        if seen.batch_ids[name] in batches
    ]
    return list(record["notes"])
