"""Each wrong body from landing to the published tables, and the tables after the next good day."""

import re

import pytest

from tests.hostile.cases import arrived
from tests.hostile.conftest import ALL, Seen
from warehouse.history.verify import verify


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_body_has_the_expected_outcome(name: str, seen: Seen) -> None:
    case, batch = seen.cases[name], seen.batch(name)
    notes = seen.notes[batch["batch_id"]]
    text = " ".join(str(part) for part in (batch["why"], batch["flagged"], *notes))
    assert (batch["status"], text) == (case.status, text)
    assert re.search(case.says, text)
    assert batch["arrived"] == arrived(case)
    assert (batch["rejected"], batch["ignored"]) == (case.rejected, case.ignored)
    assert batch["duplicates"] == case.duplicates
    if batch["status"] == "merged":
        assert batch["good"] + batch["rejected"] + batch["ignored"] == batch["arrived"]


@pytest.mark.parametrize("name", ALL)
def test_each_rejected_row_is_kept_with_a_reason(name: str, seen: Seen) -> None:
    rows = [reject for reject in seen.rejects if reject["batch_id"] == seen.batch_ids[name]]
    assert len(rows) == len({row["position"] for row in rows}) == seen.cases[name].rejected
    assert all(row["reason"] and row["raw"] is not None for row in rows)


@pytest.mark.parametrize("moment", [0, 1], ids=["after the wrong day", "after the next good one"])
def test_the_tables_equal_those_of_a_home_without_the_wrong_bodies(moment: int, seen: Seen) -> None:
    assert seen.tables[moment] == seen.expected[moment]


def test_nothing_is_lost_and_a_replay_gives_the_same_tables(seen: Seen) -> None:
    assert {
        check.check: check.wrong for check in verify(seen.home, deep=True) if not check.holds
    } == {}
    assert seen.home.landing.pending() == []
    assert set(seen.batch_ids.values()) <= set(seen.home.landing.batch_ids())
