"""Each macro and view answers as plain Python does over the history of a sandbox."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from tests.history.stories.disk import without_syncs
from tests.history.stories.merged_story import MergedStory, land_story, merged_in
from tests.history.stories.story import Setting
from tests.warehouse.answers.plain.answers import PlainAnswers, Row
from tests.warehouse.answers.plain.views import text_at_now, view_at
from warehouse.schema import ddl
from warehouse.schema.tables import Table
from warehouse.schema.views import MACROS, VIEWS
from warehouse.sql import statements_in

SMALL = Setting(
    seed=3,
    pace=4,
    starts=datetime(2017, 4, 3, tzinfo=UTC),
    polls=("00:00", "18:30"),
    posted=("17:00",),
    look_ups=1,
)
INSTANTS = 200
INSTANTS_BY_DEFAULT = 30
ZONES = ["UTC", "America/New_York", "Pacific/Kiritimati"]
SECOND = timedelta(seconds=1)
UPCOMING = "event_id, title, date_exact, date_precision, earliest, latest, days_until"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> MergedStory:
    with without_syncs():
        return land_story(SMALL, tmp_path_factory.mktemp("small-story"))


@pytest.fixture(scope="module")
def plain(story: MergedStory) -> PlainAnswers:
    return PlainAnswers(story.oracle(), story.story.batches)


@pytest.fixture(scope="module")
def connection(
    story: MergedStory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    pieces = [[batch.batch_id for batch in story.story.batches]]
    with without_syncs():
        merged = merged_in(story, tmp_path_factory.mktemp("merged") / "home", pieces)
    with duckdb.connect(str(merged.home.warehouse), read_only=True) as opened:
        # A zone with half an hour: what follows the zone of the session is wrong by it.
        opened.execute("SET TimeZone = 'Asia/Kolkata'")
        yield opened


@pytest.fixture(
    scope="module",
    params=[INSTANTS_BY_DEFAULT, pytest.param(INSTANTS, marks=pytest.mark.long)],
)
def instants(plain: PlainAnswers, request: pytest.FixtureRequest) -> list[datetime]:
    """Return instants around the pulls, around midnights, and random ones."""
    first, last = plain.pulls[0], plain.pulls[-1]
    pulls = [at + by for at in plain.pulls for by in (-SECOND, 0 * SECOND, SECOND)]
    days = range((last - first).days)
    midnights = [
        SMALL.starts + timedelta(days=day + 1, seconds=by) for day in days for by in (-1, 0, 1)
    ]
    random = Random(13)
    others = [first + random.randrange((last - first) // SECOND) * SECOND for _ in range(99)]
    chosen = [*random.sample([at for at in pulls if at >= first], 70), *midnights, *others]
    return sorted(random.sample(chosen[:INSTANTS], request.param))


def rows(connection: duckdb.DuckDBPyConnection, sql: str, **values: Any) -> set[Row]:
    """Return the rows of a query; lists are tuples, sums are rounded."""
    found = connection.execute(sql, values or None).fetchall()
    result = {tuple(map(_plain, row)) for row in found}
    assert len(result) == len(found), "a row occurs twice"
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(value) if isinstance(value, list) else value


def test_events_as_of_name_the_last_pull(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    sql = "SELECT event_id, version, missing_since, last_pull_at FROM events_as_of($at)"
    for at in instants:
        assert rows(connection, sql, at=at) == {
            (
                event_id,
                version.version,
                plain.oracle.events[event_id].missing_at(at),
                plain.last_pull_at(at),
            )
            for event_id, version in plain.known(at).items()
        }


def test_upcoming_as_of(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    for at in instants:
        found = rows(connection, f"SELECT {UPCOMING} FROM upcoming_as_of($at)", at=at)
        assert found == plain.upcoming_as_of(at)


def test_coins_as_of(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    sql = "SELECT coin, rank, tracked, observed_at FROM coins_as_of($at)"
    counted = """
        SELECT count(*) FROM coins_as_of($at) AS a
        JOIN coin_snapshots AS s USING (coin, observed_at)
        JOIN coins AS c ON c.slug = coin
        WHERE (a.upcoming_count, a.major_count, a.peak_impact, a.symbol, a.name)
            IS NOT DISTINCT FROM
            (s.upcoming_count, s.major_count, s.peak_impact, c.symbol, c.name)
    """
    first = min(row[3] for row in plain.snapshots)
    for at in instants:
        if at < first:
            with pytest.raises(duckdb.Error, match="before the first observation"):
                rows(connection, sql, at=at)
        else:
            expected = plain.coins_as_of(at)
            assert rows(connection, sql, at=at) == {(slug, *row) for slug, row in expected.items()}
            assert rows(connection, counted, at=at) == {(len(expected),)}


def test_event_coins_as_of(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    for at in instants:
        found = rows(connection, "SELECT event_id, coin, rank FROM event_coins_as_of($at)", at=at)
        assert found == plain.event_coins_as_of(at)
    named = "SELECT count(*) FROM event_coins_as_of($at) WHERE name IS NULL OR symbol IS NULL"
    assert rows(connection, named, at=instants[-1]) == {(0,)}


def test_known_before(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    sql = (
        "SELECT event_id, version, missing_since, last_pull_at, known_at, date_final "
        "FROM known_before($lead)"
    )
    found = 0
    for number in range(0, INSTANTS, INSTANTS // len(instants)):
        lead = timedelta(hours=number * 3 - 100, seconds=number % 7)
        expected = plain.known_before(lead)
        assert rows(connection, sql, lead=lead) == expected
        found += len(expected)
    assert found > len(instants)


def test_changes_since(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    columns = "event_id, title, coins, version, known_from, kind, old_value, new_value"
    expected = set(map(_sorted_fields, plain.changes()))
    found = set(map(_sorted_fields, rows(connection, f"SELECT {columns} FROM changes")))
    assert found == expected
    for at in instants:
        since = rows(connection, f"SELECT {columns} FROM changes_since($at)", at=at)
        assert set(map(_sorted_fields, since)) == {row for row in expected if row[4] > at}


def _sorted_fields(row: Row) -> Row:
    """Sort the names of changed fields, whose order does not matter."""
    *others, kind, old, new = row
    named = kind in ("created", "revealed", "revised") and new is not None
    return (*others, kind, old, ", ".join(sorted(new.split(", "))) if named else new)


def test_coverage_at(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    sql = "SELECT batch_id, age_hours FROM coverage_at($at)"
    observed = {batch.batch_id: batch.observed_at for batch in plain.batches}
    for at in instants:
        hours = timedelta(hours=1)
        assert {(name, round(age, 6)) for name, age in rows(connection, sql, at=at)} == {
            (name, round((at - observed[name]) / hours, 6)) for name in plain.coverage_at(at)
        }


def test_coin_lookup(connection: duckdb.DuckDBPyConnection, plain: PlainAnswers) -> None:
    random = Random(INSTANTS)
    coins = list(plain._last_coins())
    for number in range(INSTANTS):
        coin = random.choice(coins)
        text = random.choice([coin.slug, coin.symbol, coin.name])
        text = text[: random.randint(1, len(text))] if number % 2 else text
        text = random.choice([text, text.upper(), text.title(), f" {text}"])
        sql = "SELECT coin, matched_by FROM coin_lookup($text)"
        found = connection.execute(sql, {"text": text}).fetchall()
        assert found == plain.coin_lookup(text), text


def test_score_history(connection: duckdb.DuckDBPyConnection, plain: PlainAnswers) -> None:
    columns = (
        "event_id, version, old_impact, old_impact_band, impact, impact_band, known_from, known_to,"
        "days_before"
    )
    expected = set(plain.score_history())
    assert rows(connection, f"SELECT {columns} FROM score_history") == expected
    assert len(expected) > INSTANTS


def test_detection_latency(connection: duckdb.DuckDBPyConnection, plain: PlainAnswers) -> None:
    columns = "event_id, version, kind, happened_at, latency_s, feed"
    expected = set(plain.detection_latency())
    assert rows(connection, f"SELECT {columns} FROM detection_latency") == expected
    assert {row[2] for row in expected} == {"created", "cancelled", "updated"}


def test_missing_events(connection: duckdb.DuckDBPyConnection, plain: PlainAnswers) -> None:
    found = rows(connection, "SELECT event_id, missing_since, last_seen_at FROM missing_events")
    assert found == plain.missing_events()
    assert found


def test_views_of_now(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, instants: list[datetime]
) -> None:
    """They read what is known last, so that their instants are those after the last pull."""
    ahead = [plain.pulls[-1] + (at - instants[0]) for at in instants]
    upcoming = view_at(connection, "upcoming_events", f"SELECT {UPCOMING}")
    today = view_at(connection, "today", "SELECT event_id")
    under_way = view_at(connection, "under_way", "SELECT event_id")
    clusters = view_at(
        connection,
        "clusters",
        "SELECT coin, day, events, round(sum_impact, 6), max_impact, event_ids",
    )
    seen: dict[str, int] = {}
    for at in ahead:
        found = {
            "upcoming": (rows(connection, upcoming, now=at), plain.upcoming(at)),
            "today": (rows(connection, today, now=at), {(e,) for e in plain.today(at)}),
            "under_way": (rows(connection, under_way, now=at), {(e,) for e in plain.under_way(at)}),
            "clusters": (rows(connection, clusters, now=at), plain.clusters(at)),
        }
        for name, (is_, expected) in found.items():
            assert is_ == expected, f"{name} at {at}"
            seen[name] = seen.get(name, 0) + len(expected)
    assert min(seen.values()) > 0, seen


@pytest.mark.parametrize("name", [view.name for view in VIEWS])
def test_no_view_follows_the_zone_of_the_session(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, name: str
) -> None:
    for hour in (11, 23):
        now = plain.pulls[-1].replace(hour=hour, minute=30)
        text = text_at_now(connection, name, f"TIMESTAMPTZ '{now.isoformat()}'")
        _same_in_every_zone(connection, text)


@pytest.mark.parametrize("macro", MACROS, ids=lambda macro: macro.name)
def test_no_macro_follows_the_zone_of_the_session(
    connection: duckdb.DuckDBPyConnection, plain: PlainAnswers, macro: Table
) -> None:
    at = plain.pulls[len(plain.pulls) // 2].replace(tzinfo=None)
    values = {"ts": f"'{at}'", "lead": "INTERVAL '1 month 2 days'", "wanted": "'b'"}
    values |= {"cohort_from": f"'{at}'", "horizon": "INTERVAL '2 days'"}
    given = ", ".join(values[name] for name in re.findall(r"[(,] ?(\w+)(?! :=)\b", macro.call))
    _same_in_every_zone(connection, f"FROM {macro.name}({given})")


def _same_in_every_zone(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = []
    with connection.cursor() as session:
        for zone in ZONES:
            session.execute("SET TimeZone = $zone", {"zone": zone})
            found.append(sorted(map(repr, rows(session, sql))))
    assert found[0]
    assert found[0] == found[1] == found[2]


def test_statements_convert_instants_to_utc_before_they_take_days_of_them() -> None:
    for name, text in ((n, t) for n, t in _statements() if re.search(_OF_DAYS, t)):
        for found in re.finditer(_OF_DAYS, text):
            around = text[max(0, found.start() - 250) : found.end() + 250]
            assert "AT TIME ZONE 'UTC'" in around, f"{name}: {found[0]} follows the session's zone"


_OF_DAYS = r"::DATE\b|\bdate_trunc\(|\bdate_diff\(|INTERVAL \d+ (DAY|WEEK|MONTH|QUARTER|YEAR)"


def _statements() -> Iterator[tuple[str, str]]:
    for file in sorted((Path(ddl.__file__).parent / "views").glob("*.sql")):
        for name, text in statements_in(file.read_text()):
            yield name, re.sub(r"--[^\n]*", "", text)
