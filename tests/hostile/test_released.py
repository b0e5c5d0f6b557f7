"""A quarantined batch that a person trusts; rows that can't be read twice; a field of 10 MB."""

from pathlib import Path
from typing import Any

import pytest

from tests.crashes.tables import published
from tests.hostile.conftest import BESIDE, Seen, catalog
from tests.hostile.good_days import Good, at_case, page, partial, pull_of
from warehouse import queries
from warehouse.errors import LandingError
from warehouse.history.merge import merge, replay
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.landing.batches import Scope
from warehouse.landing.landing import Landing

BAD = 12


def with_bad_rows(good: Good, number: int, count: int = BAD) -> tuple[bytes, bytes]:
    """Return an export with rows that can't be read, and one without these."""
    rows = good.changed(number)
    kept = good.csv(rows[count:])
    for row in rows[:count]:
        row["date"] = "soon"
    return good.csv(rows), kept


def query_rows(home: Home, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    with queries.connected(home.warehouse) as connection:
        return connection.execute(sql, values).fetchall()


def status(home: Home, batch_id: str) -> tuple[Any, ...]:
    query = "SELECT status, rejected, why FROM batches WHERE batch_id = $batch_id"
    return query_rows(home, query, batch_id=batch_id)[0]


@pytest.mark.parametrize(
    "released", [pytest.param("before a later day", marks=pytest.mark.long), "after it"]
)
def test_a_released_batch_counts_as_if_it_had_never_been_quarantined(
    released: str, good: Good, tmp_path: Path
) -> None:
    home, proper = Home(tmp_path / "home"), Home(tmp_path / "proper")
    number = 20
    body, kept = with_bad_rows(good, number)
    pull = pull_of(good, "export", at_case(number))
    for target in (home, proper):
        good.land_before(target.landing)
    batch_id = home.landing.land(pull, [(body, None)]).batch_id
    proper.landing.land(partial(pull), [(kept, None)])
    merge(home)
    assert status(home, batch_id)[0] == "quarantined"
    assert home.landing.pending() == []
    if released == "after it":
        good.land_after(home.landing)
        merge(home)
    home.landing.release(batch_id)
    if released == "before a later day":
        merge(home)
        good.land_after(home.landing)
    good.land_after(proper.landing)
    before, expected = catalog(home), catalog(proper)
    # The released batch is complete and the other is not: it made events missing for a day.
    different = {name for name in before if before[name] != expected[name]}
    assert different == {"event_absences"}
    assert status(home, batch_id) == ("merged", BAD, None)
    assert len(query_rows(home, "SELECT 1 FROM rejects WHERE batch_id = $b", b=batch_id)) == BAD
    replay(home)
    assert published(home.warehouse, without=BESIDE, columns={"batch_id"}) == before
    assert {check.check: check.wrong for check in verify(home) if not check.holds} == {}


def test_the_release_of_an_unknown_batch_is_an_error(seen: Seen) -> None:
    for name in ("20260101T000000Z-export-0123456789ab", "../../etc/passwd", ""):
        with pytest.raises(LandingError):
            seen.home.landing.release(name)


@pytest.mark.parametrize("columns", [("date",), ("id", "slug", "sourceUrl", "snapshotUrl")])
def test_events_whose_rows_are_unreadable_twice_are_not_withdrawn(
    columns: tuple[str, ...], good: Good, tmp_path: Path
) -> None:
    """A row without a readable id may be of any event, so absence proves nothing."""
    place = next(n for n, row in enumerate(good.rows) if row["date"] > "2026-03-05")
    home = Home(tmp_path / "home")
    good.land_before(home.landing)
    merge(home)
    for number in (0, 120):
        rows = [dict(row) for row in good.rows]
        rows[place].update(dict.fromkeys(columns, ""))
        pull = pull_of(good, "export", at_case(number))
        home.landing.land(pull, [(good.csv(rows), None)])
        since = Scope(since=at_case(number - 3_000))
        watched = pull_of(good, "cancellations", at_case(number + 5), scope=since)
        home.landing.land(watched, [(page([]), None)])
    merge(home)
    query = "SELECT status, missing_since FROM events WHERE event_id = $id"
    assert query_rows(home, query, id=good.rows[place]["id"]) == [("scheduled", None)]


def test_a_field_of_ten_megabytes_is_stored_completely(good: Good, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    rows = [dict(row) for row in good.rows[:20]]
    rows[3]["description"] = ("so\n" + "long, " * 2_000) * 900
    assert len(rows[3]["description"]) > 10 << 20
    pull = pull_of(good, "export", at_case(0))
    landed = home.landing.land(pull, [(good.csv(rows), None)])
    merge(home)
    query = "SELECT description FROM events WHERE event_id = $id"
    assert query_rows(home, query, id=rows[3]["id"]) == [(rows[3]["description"].strip(),)]
    assert status(home, landed.batch_id) == ("merged", 0, None)
    assert {check.check: check.wrong for check in verify(home) if not check.holds} == {}


def test_a_body_changed_on_disk_is_reported_and_not_published(good: Good, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    good.land_before(home.landing)
    merge(home)
    landing: Landing = home.landing
    manifest = landing.land(pull_of(good, "export", at_case(0)), [(good.csv(good.rows[:5]), None)])
    other = landing.land(pull_of(good, "export", at_case(1)), [(good.csv(good.rows[:6]), None)])
    landing.body_path(manifest).write_bytes(landing.body_path(other).read_bytes())
    assert list(merge(home).damaged) == [manifest.batch_id]
    without_it = Home(tmp_path / "without_it")
    good.land_before(without_it.landing)
    without_it.landing.land(pull_of(good, "export", at_case(1)), [(good.csv(good.rows[:6]), None)])
    merge(without_it)
    assert published(home.warehouse) == published(without_it.warehouse)
