"""Pages at a past time equal SQL on what was known then."""

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from random import Random
from urllib.parse import unquote

import httpx
import pytest

from almanac.database import Database
from tests.application.mirror.filled_home import NOW, STARTS

MICROSECOND = timedelta(microseconds=1)
_COMPARED = (
    *("event_id", "title", "coins", "categories", "displayed_date_full", "date_precision"),
    *("earliest", "latest", "impact", "impact_band", "source_url"),
)


def random_times(database: Database, count: int) -> list[datetime]:
    """Return times in the history: at a change, a moment before it, and anywhere."""
    chance = Random(37)
    rows = database.sql("SELECT DISTINCT known_from FROM event_versions ORDER BY known_from").rows()
    changes = [row["known_from"] for row in rows]
    found = [chance.choice(changes) for _ in range(count // 3)]
    found += [at - MICROSECOND for at in found]
    span = (NOW - STARTS) / MICROSECOND
    found += [STARTS + chance.random() * span * MICROSECOND for _ in range(count)]
    return [at for at in found if at >= changes[0]][:count]


class PastSite:
    """Reads the pages as of a time."""

    def __init__(self, client: httpx.Client, at: datetime) -> None:
        self._client = client
        self._as_of = f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"

    def get(self, path: str, **parameters: str) -> httpx.Response:
        return self._client.get(path, params={**parameters, "as_of": self._as_of})


def check_upcoming(site: PastSite, database: Database, at: datetime) -> None:
    """Compare all rows of the list with SQL, and the first page with these rows."""
    sql = f"SELECT {', '.join(_COMPARED)} FROM upcoming_as_of($at) ORDER BY event_id"
    expected = json.loads(json.dumps(database.sql(sql, at=at).rows(), default=_as_text))
    listed = site.get("/", when="all", format="json").json()["rows"]
    coming = [row for row in listed if row["gone"] is None and row["latest"] > _as_text(at)]
    found = [{name: row[name] for name in _COMPARED} for row in coming]
    assert sorted(found, key=lambda row: str(row["event_id"])) == expected, at
    exact = [row["event_id"] for row in listed if row["date_precision"] in ("instant", "day")]
    page = site.get("/", when="all", estimated="drop").text
    assert [
        unquote(each) for each in re.findall(r'scope="row"[^>]*><a href="/event/([^"?]+)', page)
    ] == (exact[:60]), at


def _as_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def check_events(site: PastSite, database: Database, at: datetime, chance: Random) -> None:
    rows = database.sql(
        "SELECT event_id, count(*) FILTER (known_from <= $at) AS versions, "
        "arg_max(title, version) FILTER (known_from <= $at) AS title, "
        "list(displayed_date_full) FILTER (known_from > $at) AS later "
        "FROM event_versions GROUP BY event_id ORDER BY event_id",
        at=at,
    ).rows()
    many = [row for row in rows if row["versions"] > 1 or row["later"]]
    for row in chance.sample(rows, 3) + chance.sample(many, min(4, len(many))):
        page = site.get(f"/event/{row['event_id']}")
        if not row["versions"]:
            assert page.status_code == 404, (at, row)
            assert "not known then" in page.text
            continue
        assert page.status_code == 200, (at, row)
        timeline = page.text[page.text.index('<ol class="timeline"') :]
        assert timeline.count("· version ") == row["versions"], (at, row)
        assert unescape(page.text).count(row["title"]) >= 1, (at, row)


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.long)])
def test_pages_show_what_was_known(client: httpx.Client, database: Database, count: int) -> None:
    chance = Random(37)
    for at in [NOW, *random_times(database, count)]:
        site = PastSite(client, at)
        check_upcoming(site, database, at)
        check_events(site, database, at, chance)


def test_a_time_without_an_answer_gets_a_page_with_the_reason(client: httpx.Client) -> None:
    wrong = {"1999-01-01": 422, "2999-01-01": 422, "yesterday's": 400}
    for as_of, status in wrong.items():
        for path in ("/", "/coins", "/coin/bitcoin"):
            answer = client.get(path, params={"as_of": as_of})
            assert answer.status_code == status, (path, answer.text)
            assert 'role="alert"' in answer.text


@pytest.mark.parametrize("path", ["/?format=csv&when=all", "/changes?format=csv", "/calendar.ics?"])
def test_header_of_the_interface_names_the_time_of_a_page_too(
    client: httpx.Client, path: str
) -> None:
    asked = {"X-As-Of": "2026-02-27"}
    found = client.get(path, headers=asked)
    assert found.text == client.get(f"{path}&as_of=2026-02-27").text != client.get(path).text
    assert "X-As-Of" in found.headers["vary"]
    misspelt = client.get("/", headers={"X-As_Of": "2026-02-27"})
    assert misspelt.status_code == 400 and "write X-As-Of" in misspelt.text
    assert client.get(f"{path}&as_of=2026-02-28", headers=asked).status_code == 400


@pytest.mark.parametrize("server", ["mirror", "replay"])
def test_slider_has_the_last_pull_of_each_day(
    clients: dict[str, httpx.Client], database: Database, server: str
) -> None:
    now = NOW if server == "mirror" else STARTS + timedelta(days=1)
    rows = database.sql(
        "SELECT max(observed_at) AS last_at FROM batches WHERE status = 'merged' "
        "AND observed_at <= $now AND feed IN ('export', 'events', 'event', 'deliveries') "
        "GROUP BY observed_at::DATE ORDER BY last_at",
        now=now,
    ).rows()
    times = re.findall('data-times="(.*?)"', clients[server].get("/").text)[0].split()
    assert times == [f"{row['last_at']:%Y-%m-%dT%H:%M:%S}" for row in rows]
    assert len(times) == (4 if server == "mirror" else 2)
