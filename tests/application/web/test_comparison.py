"""The comparison of a list with an earlier time equals the tables of both times."""

import re
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from almanac.database import Database
from application.web import comparison
from tests.application.mirror.filled_home import NOW
from tests.application.web.handmade_site import DAY, FIRST, serve_pages
from tests.warehouse.answers.handmade import Known

_WINDOW = """
SELECT event_id FROM events_as_of($at) AS e
WHERE status = 'scheduled' AND latest > $starts AND earliest < $ends
    AND date_precision IN ('instant', 'day')
    AND event_id NOT IN (
        SELECT event_id FROM event_absences WHERE changed_at <= $at
        GROUP BY event_id HAVING arg_max_null(missing_since, changed_at) IS NOT NULL
    )
"""


def read_rows(page: str) -> dict[str, str]:
    """Return the text of the mark of each row of the lists of a page, by event."""
    rows = re.findall(r'<th scope="row" class="event".*?</tr>', page, re.S)
    found = {}
    for row in rows:
        event = re.search(r'href="/event/([^"?]+)', row)
        mark = re.search(r'class="mark [^>]*>([^<]*)<', row)
        assert event is not None
        found[event[1]] = unescape(mark[1]) if mark else ""
    return found


@pytest.mark.parametrize("name", ["1d", "30d"])
def test_rows_that_are_new_or_gone_are_those_of_the_tables(
    client: httpx.Client, database: Database, name: str
) -> None:
    span = database.sql("SELECT min(observed_at) AS a, max(observed_at) AS b FROM batches").rows()
    first, last = (span[0][key] for key in "ab")
    then = max(first, last - timedelta(days=int(name.removesuffix("d"))))
    today = datetime(NOW.year, NOW.month, NOW.day, tzinfo=NOW.tzinfo)
    days = {"starts": today, "ends": today + 8 * DAY}
    ids = [
        {row["event_id"] for row in database.sql(_WINDOW, at=at, **days).rows()}
        for at in (NOW, then)
    ]
    known = {
        row["event_id"] for row in database.sql("SELECT event_id FROM events_as_of($at)", at=then)
    }
    page = client.get(f"/?when=7d&estimated=drop&compare={name}").text
    listed, _, gone = page.partition('<h2 id="gone">')
    assert f"{then:%Y-%m-%dT%H:%M:%S}" in gone.partition("</p>")[0]
    new = {event for event, text in read_rows(listed).items() if text == "added"}
    assert new <= ids[0] - known
    assert set(read_rows(gone)) == ids[1] - ids[0]
    assert new or ids[1] - ids[0]


def test_moves_are_told_in_days_and_what_left_has_its_reason(tmp_path: Path) -> None:
    def at(day: int) -> datetime:
        return datetime(2026, 3, day, tzinfo=FIRST.tzinfo)

    def known(event: str, day: int, **values: object) -> Known:
        shown = {"known_from": FIRST, "displayed_date": f"{day} Mar", "title": event}
        return Known(event_id=event, date=at(day), **{**shown, **values})  # type: ignore[arg-type]

    later = {"version": 2, "known_from": FIRST + 2 * DAY}
    versions = [
        known("moved", 10),
        known("moved", 15, **later, change_kinds=("rescheduled",)),
        known("off", 11),
        known("off", 11, **later, change_kinds=("cancelled",), status="cancelled"),
        known("away", 12),
        known("away", 30, **later, change_kinds=("rescheduled",)),
        known("same", 13),
        known("added", 14, known_from=FIRST + 2 * DAY),
    ]
    with serve_pages(tmp_path, versions) as client:
        address = "/?from=2026-03-04&to=2026-03-20"
        page = client.get(f"{address}&compare=7d").text
        listed, _, gone = page.partition('<h2 id="gone">')
        marks = read_rows(listed)
        assert {event: marks[event] for event in ("moved", "same", "added")} == {
            "moved": "5 days later",
            "same": "",
            "added": "added",
        }
        assert read_rows(gone) == {"off": "cancelled", "away": "now 30 Mar 2026"}
        assert "No longer in these days" not in client.get(address).text
        month = client.get("/?view=month&from=2026-03-01&compare=7d").text
        assert re.search(r'<li class="s0 moved" title="5 days later: ', month)
        early = client.get(f"{address}&compare=1d&as_of=2026-03-03T05:00:00").text
        assert read_rows(early.partition('<h2 id="gone">')[2]) == {}
        assert client.get(f"{address}&compare=2w").status_code == 400


def test_event_beyond_the_compared_number_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_MOST", 2)
    versions = [
        Known(event_id=name, title=name, date=FIRST + days * DAY, known_from=FIRST + since * DAY)
        for name, days, since in (("first", 9, 0), ("second", 10, 0), ("added", 8, 2))
    ]
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/?compare=7d").text
        listed, _, gone = page.partition('<h2 id="gone">')
        assert read_rows(listed) == {"added": "added", "first": "", "second": ""}
        assert read_rows(gone) == {}
