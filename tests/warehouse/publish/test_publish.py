"""Publish: the content of the file, when it is built anew, and what is refused."""

import os
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from warehouse.publish import publish as publish_module
from warehouse.publish.contents import fill_query, published_values
from warehouse.publish.lake_files import Inputs, find_local_state
from warehouse.publish.published_file import parameters

from tests.warehouse.publish.small_lake import FIRST_DAY, Op, Plan, SmallLake
from warehouse.errors import WarehouseError
from warehouse.files.documents import hash_file
from warehouse.queries import connected, run_sql
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import FACTS, FILLED, INTERNAL, REJECTS, TABLES, USAGE
from warehouse.sql import Statements

PLANS = [
    Plan((Op(0, seed=1), Op(1, seed=2)), coins=2, rejects=2),
    Plan((Op(0, "reschedule", 5), Op(0, "change", 6)), coins=2),
    Plan(skip=True),
    Plan((Op(1, "cancel", 2), Op(2, seed=3))),
]


def day(number: int, hour: int = 6) -> datetime:
    at = datetime.combine(FIRST_DAY, datetime.min.time(), UTC)
    return at + timedelta(days=number, hours=hour)


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    small = SmallLake(tmp_path)
    small.set_plans(PLANS)
    return small


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    """A lake that was published once, for tests that only read."""
    small = SmallLake(tmp_path_factory.mktemp("home"))
    small.set_plans(PLANS)
    small.publish()
    return small


@pytest.fixture
def renewed(published: SmallLake, tmp_path: Path) -> SmallLake:
    """A lake that was published once, for tests that publish it again."""
    return published.copied(tmp_path)


def rows(lake: SmallLake, sql: str) -> list[tuple[Any, ...]]:
    with connected(lake.warehouse) as connection:
        return run_sql(connection, sql).rows


def files(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()}


def test_the_first_publication_is_a_full_build_and_a_second_does_nothing(
    lake: SmallLake,
) -> None:
    report = lake.publish()
    assert (report.mode, report.why_full) == ("full", "there is no warehouse yet")
    assert report.rows["events"] == 3
    assert report.rows["event_versions"] == 6
    assert report.bytes == lake.warehouse.stat().st_size
    inode = lake.warehouse.stat().st_ino
    assert lake.publish().mode == "none"
    assert lake.warehouse.stat().st_ino == inode
    assert files(lake.home) == {"lake", "state", "warehouse.duckdb"}


_SPANS = "SELECT event_id, version, known_from, known_to, known_basis, first_seen_at FROM"


def test_a_version_holds_until_the_next_is_known(published: SmallLake) -> None:
    assert rows(published, f"{_SPANS} event_versions ORDER BY ALL") == [
        ("evt_0", 1, day(0), day(1), "observed", day(0)),
        ("evt_0", 2, day(1), day(1), "observed", day(0)),
        ("evt_0", 3, day(1), None, "observed", day(0)),
        ("evt_1", 1, day(0), day(3), "observed", day(0)),
        ("evt_1", 2, day(3), None, "observed", day(0)),
        ("evt_2", 1, day(3), None, "observed", day(3)),
    ]


def test_claimed_versions_hold_from_the_instants_that_the_service_names_to_the_first_observation(
    published: SmallLake,
) -> None:
    created, updated = (datetime(2025, 12, day, tzinfo=UTC) for day in (2, 3))
    assert rows(published, f"{_SPANS} event_claims ORDER BY ALL") == [
        ("evt_1", -1, created, updated, "claimed", None),
        ("evt_1", 0, updated, day(0), "claimed", None),
    ]
    shown = "SELECT title, change_kinds, len(unknown_fields) FROM event_claims ORDER BY version"
    assert rows(published, shown) == [(None, ["created"], 17), ("title 2", [], 1)]


def test_fields_that_no_observation_has_shown_are_named_in_the_order_of_the_fields(
    published: SmallLake,
) -> None:
    assert rows(published, "SELECT event_id, unknown_fields FROM events ORDER BY event_id") == [
        ("evt_0", []),
        ("evt_1", []),
        ("evt_2", ["impact", "impact_band"]),
    ]


def test_names_of_linked_coins_come_from_the_coins_and_else_from_events(
    published: SmallLake,
) -> None:
    assert rows(
        published, "SELECT coin, symbol, name FROM event_coins ORDER BY event_id, coin"
    ) == [
        ("coin-0", "C0", "Coin 0"),
        ("coin-1", "C1", "Coin 1"),
        ("coin-2", "COI", "label of coin-2"),
        ("coin-5", None, None),
    ]


def test_categories_of_events_find_their_id_by_name_in_any_case(published: SmallLake) -> None:
    assert rows(
        published, "SELECT DISTINCT category, category_id FROM event_categories ORDER BY 1"
    ) == [
        ("listing", "listing"),
        ("other", None),
    ]


def test_batches_have_their_outcome_and_coverage_has_the_watched_spans(
    published: SmallLake,
) -> None:
    with connected(published.warehouse) as connection:
        batch = run_sql(connection, "FROM batches WHERE feed = 'export' ORDER BY batch_id LIMIT 1")
        record = dict(zip(batch.columns, batch.rows[0], strict=True))
    assert record["observed_date"] == FIRST_DAY
    assert (record["arrived"], record["good"], record["rejected"]) == (4, 2, 2)
    assert record["lower"] == datetime(2017, 1, 1, tzinfo=UTC)
    assert (record["upper"], record["coins"], record["observed_at"]) == (None, ["btc"], day(0))
    assert rows(published, "SELECT count(*), min(rows), any_value(feed) FROM coverage") == [
        (3, 2, "export")
    ]
    assert rows(published, "SELECT observed_date, position, reason FROM rejects ORDER BY 2") == [
        (FIRST_DAY, 0, "no id"),
        (FIRST_DAY, 1, "no id"),
    ]
    assert rows(
        published, "SELECT observed_date, count(*) FROM coin_snapshots GROUP BY 1 ORDER BY 1"
    )[1] == (date(2026, 3, 2), 2)


def test_a_new_version_is_applied_to_a_copy_and_ends_the_one_before(renewed: SmallLake) -> None:
    renewed.set_plans([*PLANS, Plan((Op(2, "change", 3),))])
    report = renewed.publish()
    assert (report.mode, report.why_full) == ("delta", None)
    assert rows(
        renewed, "SELECT version, known_to FROM event_versions WHERE event_id = 'evt_2' ORDER BY 1"
    ) == [(1, day(4)), (2, None)]


def test_a_lake_without_a_day_gives_empty_tables(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    report = lake.publish()
    assert report.mode == "full"
    assert set(report.rows.values()) == {0}
    assert rows(lake, "FROM upcoming_events") == []


def test_another_form_a_damaged_file_or_a_bloated_file_causes_a_full_build(
    renewed: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = [*PLANS, Plan((Op(4, seed=1),))]
    with monkeypatch.context() as patched:
        patched.setattr(publish_module, "hash_form", lambda: "another")
        assert "another version of Almanac" in str(renewed.publish().why_full)
    with monkeypatch.context() as patched:
        patched.setattr(publish_module.duckdb, "__version__", "9.9.9")
        patched.setattr(publish_module, "hash_form", publish_module.hash_form.__wrapped__)
        assert "another version of Almanac or DuckDB" in str(renewed.publish().why_full)
    renewed.warehouse.write_bytes(b"no database at all")
    assert renewed.publish().mode == "full"
    renewed.set_plans(more)
    with monkeypatch.context() as patched:
        patched.setattr(publish_module, "SMALL_BYTES", 0)
        patched.setattr(publish_module, "BLOAT_MAX", 0.5)
        assert "has grown" in str(renewed.publish().why_full)
    assert rows(renewed, "SELECT count(*) FROM events") == [(4,)]


@pytest.mark.parametrize("full", [True, False])
def test_a_wrong_publication_is_refused_and_the_old_file_is_kept(
    renewed: SmallLake, full: bool
) -> None:
    before = renewed.warehouse.read_bytes()
    renewed.set_plans([*PLANS, Plan((Op(2, "change", 3),))])
    newest = renewed.chain[-1]
    name = f"checkpoints/{newest.meta['checkpoint']}/content_changes.parquet"
    state = renewed.storage.path(name)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE e AS FROM '{state}'")
        connection.execute("UPDATE e SET version = 7 WHERE event_id = 'evt_2'")
        connection.execute(f"COPY e TO '{state}' (FORMAT parquet)")
    newest.meta["files"][name] = hash_file(state)  # The fault is of the merge, not of the disk.
    with pytest.raises(WarehouseError, match=r"event_id evt_2.*version 7.*old warehouse is kept"):
        renewed.publish(full=full)
    assert renewed.warehouse.read_bytes() == before
    assert files(renewed.home) == {"lake", "state", "warehouse.duckdb"}


def test_a_lake_that_lacks_a_file_is_refused_and_the_old_file_is_kept(renewed: SmallLake) -> None:
    before = renewed.warehouse.read_bytes()
    renewed.set_plans([*PLANS, Plan((Op(2, "change", 3),))])
    renewed.storage.remove(f"checkpoints/{renewed.chain[-1].meta['checkpoint']}/content.parquet")
    with pytest.raises(WarehouseError, match="is not in the lake"):
        renewed.publish()
    assert renewed.warehouse.read_bytes() == before


def test_a_wal_of_another_program_is_not_applied_to_the_new_file(
    renewed: SmallLake,
) -> None:
    log = renewed.home / "warehouse.duckdb.wal"
    log.write_bytes(os.urandom(500))
    renewed.set_plans([*PLANS, Plan((Op(2, "change", 3),))])
    renewed.publish()
    assert not log.exists()
    assert rows(renewed, "SELECT max(version) FROM events WHERE event_id = 'evt_2'") == [(2,)]


@pytest.mark.parametrize("more", [[], [Plan((Op(9, seed=1),))]])
def test_the_file_has_a_form_that_duckdb_1_4_opens(renewed: SmallLake, more: list[Plan]) -> None:
    renewed.set_plans([*PLANS, *more])
    renewed.publish()
    with connected(renewed.warehouse) as connection:
        sql = "SELECT tags FROM duckdb_databases() WHERE path IS NOT NULL"
        assert run_sql(connection, sql).rows == [({"storage_version": "v1.4.0+"},)]


def test_logs_of_this_machine_are_tables_and_an_incomplete_line_is_left_out(
    lake: SmallLake,
) -> None:
    log = lake.home / "state" / "requests" / "2026-03-01.jsonl"
    log.parent.mkdir(parents=True)
    line = (
        b'{"at": "2026-03-01T06:00:00.5+00:00", "path": "/v2/events", "status": 200, '
        b'"seconds": 0.25, "bytes": 100, "attempt": 1, "key_fingerprint": "ab", "more": 1}\n'
    )
    log.write_bytes(line + b'{"at": "2026-03-01T06:00:01+00:00", "path": "/v2/caf\xc3')
    lake.publish()
    at = day(0) + timedelta(milliseconds=500)
    unsaid = (None, None, None, None)
    assert rows(lake, "FROM requests") == [(at, "/v2/events", 200, 0.25, 100, 1, "ab", *unsaid)]
    said = b'"quota": 50, "remaining": 49, "reset_at": "2026-03-17T00:00:00Z", "request_id": "r1"'
    log.write_bytes(line + line.replace(b'"more": 1', said))
    (lake.home / "state" / "usage.jsonl").write_text(
        '{"at": "2026-03-01T06:00:00Z", "plan": "pro", "used": 5, "quota": null, '
        '"remaining": null, "reset_at": "2026-04-01T00:00:00Z"}\n'
        '{"at": "2026-03-02T06:00:00Z", "plan": "pro", "used": 6, "quota": 40, "rate": 0.5, '
        '"burst": 5, "period_start": "2026-02-17T00:00:00Z", "period_end": "2026-03-17T00:00:00Z"}'
    )
    report = lake.publish()
    assert (report.mode, report.rows["requests"]) == ("delta", 2)
    ends_at = datetime(2026, 3, 17, tzinfo=UTC)
    of_month = "SELECT quota, remaining, reset_at, request_id FROM requests"
    assert rows(lake, of_month) == [unsaid, (50, 49, ends_at, "r1")]
    readings = "SELECT read_at, plan, used, quota, rate, burst, period_start, period_end FROM usage"
    assert rows(lake, readings) == [
        (day(0), "pro", 5, None, *unsaid),
        (day(1), "pro", 6, 40, 0.5, 5, datetime(2026, 2, 17, tzinfo=UTC), ends_at),
    ]
    assert lake.publish().mode == "none"


EMPTY = Inputs(days=(), state={}, changes=[], snapshots=[], rejects=[], absences=[])
FURTHER = {"first_day": FIRST_DAY, "current": True, "everything": True}
"""The values other than files that a publication binds."""


def test_a_table_without_a_file_is_empty_and_one_whose_inputs_disagree_is_an_error() -> None:
    values = {**EMPTY.files(), **find_local_state(None).files, **FURTHER}
    assert fill_query(REJECTS, values) == ddl.no_rows(REJECTS)
    assert "$rejects" in fill_query(REJECTS, {**values, "rejects": ["file"]})
    misspelt = replace(REJECTS, inputs=("rejetcs",))
    with pytest.raises(ValueError, match="rejects, rejetcs of rejects"):
        fill_query(misspelt, {**values, "rejetcs": ["file"]})
    with pytest.raises(ValueError, match="usage"):
        fill_query(USAGE, EMPTY.files())


def test_a_day_without_its_changes_and_half_a_state_are_errors(lake: SmallLake) -> None:
    (day, *_) = lake.chain
    for state, changes in (({}, []), ({"events": "file"}, ["file"])):
        with pytest.raises(ValueError, match="expected one a day"):
            Inputs(days=(day,), state=state, changes=changes, snapshots=[], rejects=[], absences=[])


def test_every_table_is_filled_after_those_that_its_statement_reads() -> None:
    assert {table.name for table in FILLED} == {table.name for table in (*TABLES, *INTERNAL)} - {
        FACTS.name
    }
    statements = Statements("warehouse.publish", GROUPS)
    filled: set[str] = set()
    for table in FILLED:
        assert table.delta is not None
        text = statements[f"select_{table.name}"]
        read = set(re.findall(r"(?:FROM|JOIN) (\w+)\b(?!\()", text))
        assert read & {other.name for other in FILLED} <= filled, table.name
        filled.add(table.name)


def test_each_table_takes_only_values_that_a_publication_binds() -> None:
    bound = {
        *EMPTY.files(),
        *find_local_state(None).files,
        *published_values(EMPTY),
        *FURTHER,
    }
    queries = {
        name: text
        for name, text in Statements("warehouse.publish", GROUPS).texts.items()
        if name.startswith("select_")
    }
    assert queries
    for name, text in queries.items():
        assert parameters(text) <= bound, name
