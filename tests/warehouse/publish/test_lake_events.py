"""The current events in the lake by event month: only months that differ are rewritten."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from tests.warehouse.publish.test_delta import lake_events_differ
from warehouse.files.storage import Storage
from warehouse.schema.columns import AS_OF

# Seed n (0 to 6) dates an event 20 n days after the first of May.
HISTORY = [Plan((Op(0, seed=1), Op(1, seed=2), Op(2, seed=5)))]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    small = SmallLake(tmp_path_factory.mktemp("published"))
    small.set_plans(HISTORY)
    small.publish()
    return small


@pytest.fixture
def lake(published: SmallLake, tmp_path: Path) -> SmallLake:
    return published.copied(tmp_path)


def months(lake: SmallLake) -> dict[str, int]:
    """Return the inode of the file of each month."""
    found = lake.storage.root.glob("events/event_month=*/events.parquet")
    return {path.parent.name.removeprefix("event_month="): path.stat().st_ino for path in found}


def month_of(seed: int) -> str:
    at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=20 * (seed % 7))
    return f"{at:%Y-%m}"


def test_every_month_that_has_an_event_has_a_file_with_the_columns_of_events_as_of(
    lake: SmallLake,
) -> None:
    assert set(months(lake)) == {month_of(1), month_of(2), month_of(5)}
    path = lake.storage.path(f"events/event_month={month_of(5)}/events.parquet")
    with duckdb.connect() as connection:
        relation = connection.sql(f"FROM read_parquet('{path}', hive_partitioning = false)")
        assert tuple(relation.columns) == tuple(column.name for column in AS_OF)
        assert len(relation.fetchall()) == 1


def test_only_months_that_an_event_left_or_entered_are_rewritten(lake: SmallLake) -> None:
    before = months(lake)
    lake.set_plans([*HISTORY, Plan((Op(2, "reschedule", 4),))])
    assert lake.publish().months == 2
    after = months(lake)
    assert set(after) == {month_of(1), month_of(2), month_of(4)}
    assert month_of(5) not in after
    assert {month: after[month] for month in (month_of(1), month_of(2))} == {
        month: before[month] for month in (month_of(1), month_of(2))
    }


def test_an_observation_without_changed_content_updates_only_its_own_columns(
    lake: SmallLake,
) -> None:
    before = months(lake)
    lake.set_plans([*HISTORY, Plan(coins=1)])
    assert lake.publish().months == 0
    assert months(lake) == before


@pytest.mark.parametrize("after", [[], [Plan(coins=1)]])
def test_months_that_were_being_rewritten_at_a_crash_are_rewritten_after_it(
    lake: SmallLake, after: list[Plan]
) -> None:
    class Crash(Exception):
        pass

    def crash(step: str) -> None:
        if step == "publish:lake_events_written":
            raise Crash

    lake.set_plans([*HISTORY, Plan((Op(2, "reschedule", 4),))])
    with pytest.raises(Crash):
        lake.publish(step=crash)
    assert set(months(lake)) == {month_of(1), month_of(2), month_of(4)}
    # The history is refolded without the change, which was never published.
    lake.set_plans([*HISTORY, *after])
    lake.publish()
    assert set(months(lake)) == {month_of(1), month_of(2), month_of(5)}
    assert lake.publish().mode == "none"


def test_events_without_a_date_have_a_file_of_their_own(lake: SmallLake) -> None:
    lake.set_plans([*HISTORY, Plan((Op(2, seed=10), Op(3, seed=21)))])
    assert lake.publish().months == 2
    assert set(months(lake)) == {month_of(1), month_of(2), "__HIVE_DEFAULT_PARTITION__"}
    assert lake_events_differ(lake) == 0


def test_a_month_that_cannot_be_written_fails_the_publication_and_the_next_writes_all_months(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt, refused = Storage.adopt, f"event_month={month_of(4)}"

    def full_disk(storage: Storage, staged: Path, name: str) -> None:
        if refused in name:
            raise OSError("no space left")
        adopt(storage, staged, name)

    lake.set_plans([*HISTORY, Plan((Op(2, "reschedule", 4), Op(0, "change", 8)))])
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "adopt", full_disk)
        with pytest.raises(OSError, match="no space left"):
            lake.publish()
    assert month_of(4) not in months(lake)
    assert not list(lake.storage.root.glob(".unfinished*"))
    assert lake.publish().months == 3
    assert lake_events_differ(lake) == 0
