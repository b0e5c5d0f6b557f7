"""Days and times of the pages are of the zone in the address; a date without a time has none."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import parse_qsl

import httpx
import pytest
from starlette.testclient import TestClient

from almanac.database import Database
from tests.application.mirror.filled_home import NOW, STARTS
from tests.application.web.handmade_site import DAY, FIRST, serve_pages
from tests.application.web.test_pictures import read_marks
from tests.warehouse.answers.handmade import Known

CHANGE = datetime(2026, 3, 29, 1, tzinfo=UTC)
"""When the clocks of Berlin go from one to two hours before UTC."""
DATES = {
    "early": (datetime(2026, 3, 28, 22, 59, tzinfo=UTC), "2026-03-28", "23:59"),
    "winter": (datetime(2026, 3, 28, 23, 30, tzinfo=UTC), "2026-03-29", "00:30"),
    "before": (CHANGE - timedelta(minutes=1), "2026-03-29", "01:59"),
    "after": (CHANGE, "2026-03-29", "03:00"),
    "summer": (datetime(2026, 3, 29, 22, 30, tzinfo=UTC), "2026-03-30", "00:30"),
    "day": (datetime(2026, 3, 29, tzinfo=UTC), "2026-03-29", "all day"),
    "next-day": (datetime(2026, 3, 30, tzinfo=UTC), "2026-03-30", "all day"),
}
ZONES = ("Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Kiritimati")
_DAYS = """
SELECT CASE date_precision WHEN 'instant' THEN earliest AT TIME ZONE $tz
    ELSE earliest AT TIME ZONE 'UTC' END::DATE::VARCHAR AS day, count(*) AS events
FROM events_as_of($at)
WHERE date_precision IN ('instant', 'day') AND status = 'scheduled' AND event_id NOT IN (
    SELECT event_id FROM event_absences WHERE changed_at <= $at
    GROUP BY event_id HAVING arg_max_null(missing_since, changed_at) IS NOT NULL
) AND ($least IS NULL OR coalesce(impact >= $least, impact_band IN ('High', 'Critical')))
GROUP BY day
"""


@pytest.fixture(scope="module")
def berlin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a client of pages at 23:12 UTC on 26 March, when it is the 27th in Berlin."""
    versions = [
        Known(event_id=name, known_from=FIRST, title=name, date=at, displayed_date=f"{at:%d %b}")
        for name, (at, *_) in DATES.items()
    ]
    now = datetime(2026, 3, 26, 23, 12, tzinfo=UTC)
    with serve_pages(tmp_path_factory.mktemp("z"), versions, now=now, pulls=[FIRST]) as client:
        client.params = {"tz": "Europe/Berlin"}
        yield client


def test_event_is_under_its_day_with_its_hour_in_the_zone(berlin: TestClient) -> None:
    page = berlin.get("/").text
    found = {}
    for part in page.split('<tr class="day">')[1:]:
        day = part.split('datetime="')[1][:10]
        rows = re.findall(r'<td class="time">(.*?)</td>.*?/event/([^"?]+)', part, re.S)
        found |= {name: (day, re.sub("<.*?>", "", when)) for when, name in rows}
    assert found == {name: (day, hour) for name, (_, day, hour) in DATES.items()}
    for view in ("month", "week"):
        page = berlin.get("/", params={"view": view, "from": "2026-03-23"}).text
        page += berlin.get("/", params={"view": view, "from": "2026-03-30"}).text
        cells = re.findall(r"from=([\d-]+)&amp;to=[^>]*>((?:(?!</td>).)*<ul>.*?)</td>", page, re.S)
        shown = {name: day for day, cell in cells for name in re.findall(r"/event/([^\"?]+)", cell)}
        assert {*shown.items()} <= {(name, day) for name, (_, day, _) in DATES.items()}
        assert view == "month" or len(shown) == len(DATES)
        assert '<time class="hour" datetime="2026-03-28T23:30:00Z">00:30</time>' in page


def test_named_days_and_links_are_of_the_zone(berlin: TestClient) -> None:
    for query, names in {
        "from=2026-03-29&to=2026-03-29": {"winter", "before", "after", "day"},
        "from=2026-03-30": {"summer", "next-day"},
        "when=next-week": {"summer", "next-day"},
        "when=this-week": {"early", "winter", "before", "after", "day"},
    }.items():
        answer = berlin.get("/", params={**dict(parse_qsl(query)), "format": "json"})
        assert answer.status_code == 200, answer.text
        assert {row["event_id"] for row in answer.json()["rows"]} == names, query
    page = unescape(berlin.get("/", params={"view": "month"}).text)
    assert '<td class="today">\n<a class="date" href="/?tz=Europe%2FBerlin&from=2026-03-27' in page
    assert "Days and times are of Europe/Berlin." in page
    assert "<option selected>Europe/Berlin</option>" in page
    page = unescape(berlin.get("/event/winter").text)
    assert '23:30 UTC</time>, <time datetime="2026-03-28T23:30:00Z">29 Mar 2026 00:30<' in page
    assert 'href="/calendar.ics?event=winter"' in page
    assert re.search(r'href="/changes\?tz=Europe%2FBerlin"', page)
    page = berlin.get("/changes", params={"last": "30d"}).text
    assert '<time datetime="2026-03-01T06:00:00Z">07:00</time>' in page
    page = berlin.get("/search", params={"q": "wint"}).text
    assert "29 Mar 00:30" in page
    for wrong in ("EST", "Europe/Nowhere", "../etc/passwd", "<b>", "UTC+1"):
        answer = berlin.get("/", params={"tz": wrong})
        assert answer.status_code == 400 and "no such time zone" in answer.text
        assert "<b>" not in answer.text


@pytest.mark.parametrize("at", [NOW, STARTS + DAY])
@pytest.mark.parametrize("tz", ZONES)
def test_counts_of_days_equal_sql_in_the_zone(
    client: httpx.Client, database: Database, at: datetime, tz: str
) -> None:
    asked = {"tz": tz, "as_of": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    rows = database.sql(_DAYS, at=at, tz=tz, least=None).rows()
    expected = {row["day"]: row["events"] for row in rows}
    page = unescape(client.get("/", params={**asked, "view": "month", "from": "2026-03-01"}).text)
    cells = re.findall(r'from=([\d-]+)&to=[^>]*>.*?<span class="unseen"> \w+: (\d+) event', page)
    assert {day: int(n) for day, n in cells} == {day: expected.get(day, 0) for day, _ in cells}
    assert len(cells) == 42 and sum(int(n) for _, n in cells) > 100
    for day in ("2026-03-08", "2026-03-09"):  # The clocks of California change between them.
        days = {"from": day, "to": day, "estimated": "drop", "format": "json"}
        listed = client.get("/", params={**asked, **days}).json()["rows"]
        page = client.get("/", params={**asked, **days, "format": ""}).text
        before = page.partition("Began before these days")[2]
        began = set(re.findall(r'href="/event/([^"?]+)', before))
        begun = [row for row in listed if not row["gone"] and row["event_id"] not in began]
        assert len(begun) == expected.get(day, 0), day
    strip = read_marks(client.get("/", params=asked).text, "heat")
    rows = database.sql(_DAYS, at=at, tz=tz, least=5).rows()
    expected = {row["day"]: row["events"] for row in rows}
    days = [mark for mark in strip if "day" in mark]
    assert {mark["day"]: int(mark["events"]) for mark in days} == {
        mark["day"]: expected.get(mark["day"], 0) for mark in days
    }
