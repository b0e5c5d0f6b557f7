"""Moves, shares and lead times are those that plain Python finds in the history of a sandbox."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from tests.history.stories.disk import without_syncs
from tests.history.stories.merged_story import land_story, merged_in
from tests.history.stories.scenario import DEFAULT
from tests.warehouse.answers.handmade import ZONES, Absence, Handmade, Known
from tests.warehouse.answers.plain_statistics import (
    History,
    announcement_lead_times,
    cancellation_stats,
    category_stats,
    missing_at,
    slip_rates,
)
from tests.warehouse.answers.watched_sandbox import FIRST, LAST, PULLS, Watched, watch

INSTANTS = 200
INSTANTS_BY_DEFAULT = 60
"""A part of them for each zone."""
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def watched() -> Watched:
    return watch()


@pytest.fixture(scope="module")
def history(watched: Watched) -> History:
    return History(watched.versions, watched.claims)


@pytest.fixture(scope="module", params=ZONES)
def warehouse(request: pytest.FixtureRequest, watched: Watched) -> Any:
    made = Handmade(
        watched.versions,
        claims=watched.claims,
        absences=watched.absences,
        pulls=PULLS,
        zone=request.param,
    )
    yield made
    made.close()


@pytest.fixture(params=[INSTANTS_BY_DEFAULT, pytest.param(INSTANTS, marks=pytest.mark.long)])
def instants(warehouse: Handmade, request: pytest.FixtureRequest) -> list[datetime]:
    """Return a part of the instants for each zone: half at random, half around midnights."""
    random = Random(zone_of(warehouse))
    span = (LAST - FIRST) // SECOND
    found = [FIRST + random.randrange(span) * SECOND for _ in range(request.param // len(ZONES))]
    for place in range(0, len(found), 2):
        midnight = found[place].replace(hour=0, minute=0, second=0) + timedelta(days=1)
        found[place] = min(midnight + random.choice((-SECOND, 0 * SECOND, SECOND)), LAST)
    return found


def zone_of(warehouse: Handmade) -> str:
    return str(warehouse.rows("SELECT current_setting('TimeZone')")[0][0])


def by_key(
    warehouse: Handmade, view: str, key: str, names: tuple[str, ...]
) -> dict[Any, dict[str, Any]]:
    rows = warehouse.rows(f"SELECT {key}, {', '.join(names)} FROM {view}")
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def rounded(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return rows whose fractions are rounded: sums and quotients may be made in another order."""
    return {
        key: {
            name: round(value, 9) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for key, row in rows.items()
    }


def test_the_history_has_every_kind_of_move_and_every_basis(history: History) -> None:
    kinds = {row["kind"] for row in history.moves.values()}
    assert kinds == {"slipped", "pulled_in", "refined", "loosened", "time_only", "end_only"}
    leads = announcement_lead_times(history, LAST)
    assert {row["basis"] for row in leads.values()} == {"observed", "claimed"}
    assert {row["status"] for row in leads.values()} == {"scheduled", "cancelled", "withdrawn"}


def test_reschedules_are_those_of_plain_python(warehouse: Handmade, history: History) -> None:
    names = ("known_from", "kind", "least_shift_days", "most_shift_days", "shift_days")
    found = by_key(warehouse.at(LAST), "reschedules", "(event_id, version)", names)
    assert len(found) > INSTANTS
    assert rounded(found) == rounded(history.moves)


def test_shares_and_lead_times_at_many_instants_are_those_of_plain_python(
    warehouse: Handmade, watched: Watched, history: History, instants: list[datetime]
) -> None:
    for now in instants:
        missing = missing_at(watched.absences, now)
        pulled = max(at for at in PULLS if at <= now)
        warehouse.at(now)
        for view, key, expected in (
            ("category_stats", "category", category_stats(history, missing, now, pulled)),
            ("cancellation_stats", "category", cancellation_stats(history, missing, now, pulled)),
            ("announcement_lead_times", "event_id", announcement_lead_times(history, now)),
        ):
            names = tuple(next(iter(expected.values())))
            found = by_key(warehouse, view, key, names)
            assert rounded(found) == rounded(expected), (view, now)


def test_slip_rates_of_many_cohorts_are_those_of_plain_python(
    warehouse: Handmade, watched: Watched, history: History, instants: list[datetime]
) -> None:
    warehouse.at(LAST)
    random, seen = Random(zone_of(warehouse)), set()
    for at in instants:
        horizon = random.choice((timedelta(days=7), timedelta(days=1, hours=16), (LAST - at)))
        horizon = max(min(horizon, LAST - at), SECOND)
        at = min(at, LAST - horizon)
        expected = slip_rates(history, missing_at(watched.absences, at), at, at + horizon)
        names = tuple(next(iter(expected.values())))
        found = warehouse.rows(
            f"SELECT category, distance_from, date_precision, {', '.join(names)} "
            "FROM slip_rates($at::TIMESTAMPTZ, $horizon::INTERVAL)",
            {"at": at, "horizon": horizon},
        )
        rows = {row[:3]: dict(zip(names, row[3:], strict=True)) for row in found}
        assert rounded(rows) == rounded(expected), (at, horizon)
        seen |= {name for row in rows.values() for name in names if row[name]}
    assert seen == {*names}


def read_versions(connection: duckdb.DuckDBPyConnection, table: str) -> list[Known]:
    names = [item.name for item in fields(Known)]
    lists = {"change_kinds", "unknown_fields", "categories"}
    return [
        Known(
            **{
                name: tuple(value or ()) if name in lists else value
                for name, value in zip(names, row, strict=True)
            }
        )
        for row in connection.sql(f"SELECT {', '.join(names)} FROM {table}").fetchall()
    ]


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_merged_home_has_the_moves_and_rates_of_plain_python(tmp_path: Path) -> None:
    """Here plans change, fields are hidden and revealed, and events are missing and found."""
    with without_syncs():
        story = land_story(DEFAULT, tmp_path / "story")
        ids = [batch.batch_id for batch in story.story.batches]
        home = merged_in(story, tmp_path / "home", [ids]).home
    connection = duckdb.connect(str(home.warehouse), read_only=True)
    connection.execute("SET TimeZone = 'UTC'")
    claims = [
        item
        for item in read_versions(connection, "event_claims")
        if "created" in item.change_kinds and "date" not in item.unknown_fields
    ]
    history = History(read_versions(connection, "event_versions"), claims)
    sql = "SELECT event_id, changed_at, missing_since FROM event_absences"
    absences = [Absence(*row) for row in connection.sql(sql).fetchall()]
    sql = "SELECT min(observed_at), max(observed_at) FROM coverage WHERE feed <> 'cancellations'"
    first, last = connection.sql(sql).fetchall()[0]
    at_last = announcement_lead_times(history, datetime.max.replace(tzinfo=UTC))
    names = tuple(next(iter(at_last.values())))
    for zone in ZONES:
        connection.execute("SET TimeZone = $zone", {"zone": zone})
        moves = connection.sql(
            "SELECT event_id, version, kind, least_shift_days, most_shift_days FROM reschedules"
        ).fetchall()
        assert {row[:2]: row[2:] for row in moves} == {
            key: (row["kind"], row["least_shift_days"], row["most_shift_days"])
            for key, row in history.moves.items()
        }
        leads = connection.sql(
            f"SELECT event_id, {', '.join(names)} FROM announcement_lead_times"
        ).fetchall()
        found = {row[0]: dict(zip(names, row[1:], strict=True)) for row in leads}
        assert rounded(found) == rounded(at_last)
        random = Random(zone)
        for _ in range(INSTANTS // len(ZONES)):
            at, until = sorted(
                first + random.randrange((last - first) // SECOND) * SECOND for _ in range(2)
            )
            until += SECOND
            expected = slip_rates(history, missing_at(absences, at), at, until)
            rates = connection.execute(
                "SELECT category, distance_from, date_precision, cohort, slipped, held "
                "FROM slip_rates($at, $horizon)",
                {"at": at, "horizon": until - at},
            ).fetchall()
            assert {row[:3]: row[3:] for row in rates} == {
                key: (row["cohort"], row["slipped"], row["held"]) for key, row in expected.items()
            }
