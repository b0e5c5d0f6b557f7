"""The numbers of pictures equal SQL, now and as of a past time."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from almanac.database import Database
from tests.application.mirror.filled_home import NOW, STARTS
from tests.application.web.handmade_site import DAY, FIRST, serve_pages
from tests.warehouse.answers.handmade import Absence, Known

TIMES = (NOW, STARTS + timedelta(days=1, hours=5))
_HEAT = """
SELECT (earliest AT TIME ZONE 'UTC')::DATE::VARCHAR AS day, count(*)::VARCHAR AS events
FROM upcoming_as_of($from)
WHERE date_precision IN ('instant', 'day') AND earliest >= $starts AND earliest < $ends
    AND coalesce(impact >= 5, impact_band IN ('High', 'Critical'))
    AND ($coin IS NULL OR list_contains(coins, $coin))
GROUP BY day ORDER BY day
"""
_WEEKS = """
SELECT week::DATE::VARCHAR AS week, count(*)::VARCHAR AS events
FROM events_as_of($at), generate_series($starts, $ends - INTERVAL 7 DAY, INTERVAL 7 DAY) AS w (week)
WHERE status = 'scheduled' AND date_precision NOT IN ('instant', 'day')
    AND coalesce(impact >= 5, impact_band IN ('High', 'Critical'))
    AND coalesce(earliest, least(first_seen_at, latest - INTERVAL 1 DAY)) < week + INTERVAL 7 DAY
    AND latest > week
    AND event_id NOT IN (
        SELECT event_id FROM event_absences WHERE changed_at <= $at
        GROUP BY event_id HAVING arg_max_null(missing_since, changed_at) IS NOT NULL
    )
GROUP BY week ORDER BY week
"""


def read_marks(page: str, svg: str, tag: str = "(?:rect|line)") -> list[dict[str, str]]:
    """Return the data of the marks of the first picture of a class."""
    found = re.search(rf'<svg class="{svg}".*?</svg>', page, re.S)
    marks = re.findall(rf"<{tag} [^>]*data-[^>]*>", found[0]) if found else []
    return [dict(re.findall(r'(?:data-)([a-z-]+)="([^"]*)"', unescape(each))) for each in marks]


@pytest.mark.parametrize("at", TIMES)
@pytest.mark.parametrize("path", ["/", "/?view=month", "/coin/bitcoin"])
def test_heat_strip_has_the_events_of_each_day(
    client: httpx.Client, database: Database, at: datetime, path: str
) -> None:
    page = client.get(path + f"{'&' if '?' in path else '?'}as_of={at:%Y-%m-%dT%H:%M:%SZ}").text
    marks = read_marks(page, "heat")
    days = {mark["day"]: mark["events"] for mark in marks if "day" in mark}
    today = datetime(at.year, at.month, at.day, tzinfo=UTC)
    starts = today - timedelta(days=today.weekday())
    values = {"starts": starts, "ends": starts + timedelta(days=91)}
    assert list(days) == [f"{starts + n * DAY:%Y-%m-%d}" for n in range(91)]
    coin = path.partition("/coin/")[2] or None
    rows = database.sql(_HEAT.replace("$from", "$at"), at=at, coin=coin, **values).rows()
    # Events of the days of this week that are over are not upcoming.
    ahead = {day: n for day, n in days.items() if n != "0" and day > f"{today:%Y-%m-%d}"}
    assert ahead == {row["day"]: row["events"] for row in rows if row["day"] > f"{today:%Y-%m-%d}"}
    assert len(ahead) > 5
    if coin is None:
        weeks = {mark["week"]: mark["events"] for mark in marks if "week" in mark}
        rows = database.sql(_WEEKS, at=at, **values).rows()
        assert weeks == {row["week"]: row["events"] for row in rows}


@pytest.mark.parametrize("at", TIMES)
def test_path_has_each_date_with_the_time_at_which_it_was_known(
    client: httpx.Client, database: Database, at: datetime
) -> None:
    moved = database.sql(
        "SELECT DISTINCT event_id FROM reschedules WHERE known_from <= $at ORDER BY 1 LIMIT 12",
        at=at,
    ).rows()
    assert len(moved) > 5
    for row in moved:
        versions = database.sql(
            "SELECT known_from, earliest, latest, displayed_date_full, status FROM event_versions "
            "WHERE event_id = $id AND known_from <= $at ORDER BY version",
            id=row["event_id"],
            at=at,
        ).rows()
        versions = [
            version
            for version, after in zip(versions, [*versions[1:], None], strict=True)
            if after is None or after["known_from"] != version["known_from"]
        ]
        expected: list[dict[str, str]] = []
        before = None
        for version in versions:
            key = tuple(version[name] for name in version if name != "known_from")
            if before is not None and key != before and expected and "to" not in expected[-1]:
                expected[-1]["to"] = _text(version["known_from"])
            if key != before and version["latest"] and version["status"] == "scheduled":
                mark = {"from": version["known_from"], "earliest": version["earliest"]}
                mark["latest"] = version["latest"]
                expected.append({name: _text(time) for name, time in mark.items() if time})
            before = key
        page = client.get(f"/event/{row['event_id']}?as_of={at:%Y-%m-%dT%H:%M:%SZ}").text
        assert read_marks(page, "path large") == [
            {name: mark[name] for name in ("from", "to", "earliest", "latest") if name in mark}
            for mark in expected
        ]


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def at(day: int) -> datetime:
    return datetime(2026, 3, day, tzinfo=UTC)


def make_history() -> list[Known]:
    """Return an event that is postponed, then cancelled, and one that is missing at the end."""
    shown = {"event_id": "evt", "title": "Unlock", "coins": ("near",)}
    return [
        Known(**shown, known_from=FIRST, date=at(10), displayed_date="10 Mar"),  # type: ignore[arg-type]
        Known(
            **shown,  # type: ignore[arg-type]
            version=2,
            known_from=FIRST + DAY,
            change_kinds=("rescheduled",),
            changed_fields=("date", "displayed_date"),
            date=at(15),
            displayed_date="15 Mar <b>",
        ),
        Known(
            **shown,  # type: ignore[arg-type]
            version=3,
            known_from=FIRST + 2 * DAY,
            change_kinds=("cancelled",),
            changed_fields=("status",),
            status="cancelled",
            date=at(15),
            displayed_date="15 Mar <b>",
        ),
        Known(event_id="lost", known_from=FIRST, date=at(12), displayed_date="12 Mar"),
        Known(
            event_id="far",
            known_from=FIRST,
            date=datetime(9998, 12, 31, tzinfo=UTC),
            displayed_date="By 31 Dec 9998",
            is_estimated=True,
        ),
    ]


def test_cross_marks_where_an_event_was_cancelled_or_went_missing(tmp_path: Path) -> None:
    absences = [Absence("lost", FIRST + DAY, FIRST + DAY)]
    with serve_pages(tmp_path, make_history(), absences=absences) as client:
        page = client.get("/event/evt").text
        cancelled = [{"gone": "cancelled", "from": "2026-03-03T06:00:00Z"}]
        assert read_marks(page, "path large", "path") == cancelled
        assert "<title>15 Mar &lt;b&gt; 2026: known from 02 Mar 2026 06:00 UTC</title>" in page
        lanes = read_marks(client.get("/coin/near").text, "lanes", "(?:rect|circle)")
        assert [each.get("event") for each in lanes] == [None, "evt"]
        assert "ghost" in lanes[0]
        page = client.get("/event/lost").text
        lost = [{"gone": "missing", "from": "2026-03-02T06:00:00Z"}]
        assert read_marks(page, "path large", "path") == lost
        then = client.get("/event/evt?as_of=2026-03-02T12:00:00").text
        assert read_marks(then, "path large", "path") == []
        assert len(read_marks(then, "path large")) == 2
        assert len(read_marks(client.get("/event/far").text, "path large")) == 1
        small = read_marks(client.get("/").text, "path")
        assert small == [{"from": "2026-03-01T06:00:00Z"}, {"from": "2026-03-02T06:00:00Z"}]
        assert 'class="path"' not in client.get("/?as_of=2026-03-01T12:00:00").text


@pytest.mark.parametrize("at", TIMES)
def test_lanes_have_the_events_of_a_coin_with_their_former_dates(
    client: httpx.Client, database: Database, at: datetime
) -> None:
    coin = "bitcoin"
    page = client.get(f"/coin/{coin}?as_of={at:%Y-%m-%dT%H:%M:%SZ}").text
    marks = [each for each in read_marks(page, "lanes", "(?:rect|circle)") if "event" in each]
    rows = database.sql(
        "SELECT event_id, impact, latest FROM events_as_of($at) WHERE list_contains(coins, $coin) "
        "AND latest > $at - INTERVAL 90 DAY AND latest IS NOT NULL "
        "AND coalesce(earliest, first_seen_at) < $at + INTERVAL 90 DAY",
        at=at,
        coin=coin,
    ).rows()
    known = {row["event_id"]: row for row in rows}
    assert 5 < len(marks) <= len(known)
    for each in marks:
        row = known[each["event"]]
        assert each.get("impact") == (None if row["impact"] is None else str(row["impact"]))
        assert each["to"] == _text(row["latest"])
    former = database.sql(
        "SELECT count(DISTINCT (v.event_id, v.latest)) AS n FROM event_versions AS v "
        "JOIN events_as_of($at) AS e USING (event_id) WHERE v.known_from <= $at "
        "AND v.latest <> e.latest AND list_contains($ids, event_id)",
        at=at,
        ids=[each["event"] for each in marks],
    ).rows()[0]["n"]
    assert len(re.findall(r'data-ghost="', page)) <= former


@pytest.mark.parametrize("least", ["", "&min_impact=9", "&max_rank=500"])
@pytest.mark.parametrize("at", TIMES)
def test_head_line_counts_what_its_links_list(
    client: httpx.Client, at: datetime, least: str
) -> None:
    page = client.get(f"/?as_of={at:%Y-%m-%dT%H:%M:%SZ}{least}").text
    head = re.search(r'<p class="head">.*?</p>', page, re.S)
    assert head is not None
    links = re.findall(r'<a href="([^"]+)"><strong>([\d,]+)</strong> ([^<]+)</a>', head[0])
    assert [text for *_, text in links] == [
        "critical in 7 days",
        "moved since yesterday",
        "cancelled since yesterday",
    ]
    for address, count, text in links:
        rows = client.get(unescape(address) + "&format=json").json()["rows"]
        exact = [row for row in rows if row.get("date_precision") in ("instant", "day")]
        if text.startswith("critical"):
            rows = [row for row in exact if not row["gone"]]
        assert len(rows) == int(count), text


def test_reliability_equals_the_table_of_slip_rates(
    client: httpx.Client, database: Database
) -> None:
    span = database.sql(
        "SELECT min(observed_at) AS since, max(observed_at) AS until FROM coverage "
        "WHERE feed IN ('export', 'events')"
    ).rows()[0]
    rows = database.sql(
        "SELECT category, sum(cohort)::INTEGER AS n, sum(slipped) / n AS slipped, "
        "sum(held) / n AS held, (sum(cancelled) + sum(withdrawn)) / n AS cancelled, "
        "sum(pulled_in) / n AS earlier FROM slip_rates($since, $until::TIMESTAMPTZ - "
        "$since::TIMESTAMPTZ) WHERE date_precision = 'day' AND category IS NOT NULL "
        "GROUP BY category HAVING n >= 20",
        **span,
    ).rows()
    assert rows
    for row in rows:
        (event,) = database.sql(
            "SELECT event_id FROM events WHERE date_precision = 'day' AND status = 'scheduled' "
            "AND categories = [$category] LIMIT 1",
            category=row["category"],
        ).rows() or [None]
        if event is None:
            continue
        page = client.get(f"/event/{event['event_id']}").text
        shares = {mark["kind"]: float(mark["share"]) for mark in read_marks(page, "shares", "rect")}
        names = ("held", "slipped", "earlier", "cancelled")
        assert shares == pytest.approx({name: row[name] for name in names})
        assert f"of {row['n']:,} slipped" in page
