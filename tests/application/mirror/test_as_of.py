"""Answers as of a time: the forms of the time, and an independent model of what was known."""

import csv
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.application.mirror.filled_home import NOW, STARTS, mirroring
from tests.application.mirror.replays import replaying
from tests.history.stories.handmade import HandmadeHome, coin
from tests.reading import reading
from warehouse.home import Home

ROUTES = (
    *("/v2/events", "/v2/events/export", "/v2/events/cancellations", "/v2/events/changes"),
    *("/v2/coins", "/v2/categories", "/v2/usage"),
)
UNKNOWN = ("/v2/events/unknown", "/v2/events/unknown/history", "/v2/coins/unknown")
FORM = "must be YYYY-MM-DD or an RFC 3339 instant in UTC"
AT = "2026-02-26T12:30:00.000250Z"


@pytest.fixture(scope="module")
def client(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with mirroring(filled_home, tmp_path_factory.mktemp("mirror")) as (_, client):
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["error"]["code"], answer.json()["message"]


def test_an_unreadable_time_or_a_misspelt_name_is_a_400(client: httpx.Client) -> None:
    """Which texts are read is in the tests of the contract."""
    for path in ROUTES:
        for text in ("now", "2026-02-26 06:00:00Z'--"):
            by_query = client.get(path, params={"as_of": text})
            by_header = client.get(path, headers={"X-As-Of": text})
            assert refusal(by_query) == (400, "invalid_request", f"as_of {FORM}"), path
            assert refusal(by_header) == (400, "invalid_request", f"X-As-Of {FORM}"), path
        header = client.get(path, headers={"X-AsOf": "2026-02-26"})
        assert refusal(header)[2] == "the header 'x-asof' is unknown; write X-As-Of"
        misspelt = client.get(path, params={"as_off": "2026-02-26"})
        assert refusal(misspelt)[2] == "'as_off' is not a parameter of this path; write as_of"
    followed = client.get("/v2/events/changes", params={"sinse": "2026-02-26"})
    assert refusal(followed)[2].endswith("write since")


def test_a_time_without_an_answer_is_a_422_that_names_the_bound(client: httpx.Client) -> None:
    early, late = (
        "history starts at 2026-02-25T06:00:00Z",
        "the newest time is 2026-02-28T20:00:30Z",
    )
    for text, reason in {
        "2026-02-25T05:59:59.999999Z": f"is before the first pull: {early}",
        "0001-01-01T00:00:00Z": f"is before the first pull: {early}",
        "2026-02-28T20:00:30.000001Z": f"is in the future: {late}",
        "9999-12-31T23:59:59Z": f"is in the future: {late}",
    }.items():
        for path in (*ROUTES, *UNKNOWN):
            answer = client.get(path, params={"as_of": text})
            assert refusal(answer) == (422, "as_of_out_of_range", f"{text} {reason}"), path


def test_a_warehouse_without_a_pull_of_events_has_no_history(tmp_path: Path) -> None:
    small = HandmadeHome(tmp_path / "home")
    small.coins("01 09:00", coin("bitcoin"))
    small.merge()
    with mirroring(small.home, tmp_path / "mirror") as (_, client):
        status, code, message = refusal(client.get("/v2/coins?as_of=2026-02-26"))
    assert (status, code) == (422, "as_of_out_of_range")
    assert message == "Nothing was pulled yet: this warehouse has no history"


def test_query_and_header_have_the_same_answer_and_name_the_time(client: httpx.Client) -> None:
    for path in ROUTES:
        by_query = client.get(path, params={"as_of": AT})
        by_header = client.get(path, headers={"X-As-Of": AT})
        both = client.get(path, params={"as_of": AT}, headers={"X-As-Of": AT})
        head = client.head(path, params={"as_of": AT})
        for answer in (by_query, by_header, both, head):
            assert answer.status_code == 200
            assert answer.headers["x-as-of"] == AT
            assert "x-as-of" in answer.headers["vary"].lower(), path
        if path != "/v2/usage":
            assert by_query.content == by_header.content == both.content, path
        assert "x-as-of" not in client.get(path).headers
        for bound in (STARTS, NOW):
            assert client.get(path, params={"as_of": f"{bound:%FT%TZ}"}).status_code == 200
    agreeing = {"X-As-Of": "2026-02-26T00:00:00-00:00"}
    answer = client.get("/v2/events?as_of=2026-02-26", headers=agreeing)
    assert answer.headers["x-as-of"] == "2026-02-26T00:00:00Z"


def test_two_different_times_are_refused(client: httpx.Client) -> None:
    for path in ROUTES:
        answer = client.get(f"{path}?as_of=2026-02-27", headers={"X-As-Of": AT})
        assert refusal(answer)[0] == 400, path
        assert "different times" in refusal(answer)[2]
    twice = client.get("/v2/events?as_of=2026-02-27&as_of=2026-02-27")
    assert refusal(twice)[2] == "as_of was given more than once; give it once"
    pair = [("X-As-Of", "2026-02-27"), ("X-As-Of", "2026-02-26")]
    assert client.get("/v2/events", headers=pair).status_code == 400


def test_a_tag_belongs_to_the_answer_at_its_time(client: httpx.Client) -> None:
    for path in ("/v2/events", "/v2/events/export"):
        first = client.get(f"{path}?as_of=2026-02-26T08:00:00Z")
        tag = {"If-None-Match": first.headers["etag"]}
        equal = client.get(f"{path}?as_of=2026-02-26T08:00:00Z", headers=tag)
        other = client.get(f"{path}?as_of=2026-02-26T12:00:00Z", headers=tag)
        assert (equal.status_code, equal.content, other.status_code) == (304, b"", 200), path
        assert equal.headers["x-as-of"] == "2026-02-26T08:00:00Z"
        assert other.content != first.content


def test_the_export_was_modified_at_the_last_pull_until_then(client: httpx.Client) -> None:
    shown = {
        then: client.get(f"/v2/events/export?as_of=2026-02-26T{then}Z").headers
        for then in ("09:19:59", "09:20:00", "18:00:29")
    }
    modified = [headers["last-modified"][17:25] for headers in shown.values()]
    assert modified == ["06:05:00", "09:20:00", "09:20:00"]
    tags = [headers["etag"] for headers in shown.values()]
    assert tags[0] != tags[1] == tags[2]


def test_a_client_of_a_replay_always_asks_again(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):
        for path in ("/v2/events", "/v2/categories"):
            first = client.get(path)
            assert first.headers["cache-control"] == "private, no-cache"
            again = client.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.headers["cache-control"]) == (304, "private, no-cache")
            past = client.get(path, params={"as_of": STARTS.strftime("%Y-%m-%dT%H:%M:%SZ")})
            assert "max-age" in past.headers["cache-control"]


def test_a_cursor_of_a_list_belongs_to_its_as_of(client: httpx.Client) -> None:
    then = {"limit": "1", "as_of": "2026-02-27T12:00:00Z"}
    other = {"limit": "1", "as_of": "2026-02-28T12:00:00Z"}
    for path in ("/v2/events", "/v2/coins", "/v2/events/cancellations"):
        cursor = client.get(path, params=then).json()["meta"]["cursor"]
        assert client.get(path, params={**then, "cursor": cursor}).status_code == 200
        for asked in (other, {"limit": "1"}):
            assert client.get(path, params={**asked, "cursor": cursor}).status_code == 400


Row = dict[str, Any]
MICROSECOND = timedelta(microseconds=1)
_NAMES = (
    *("slug", "title", "description", "categories", "impact", "date", "dateEnd", "dateType"),
    *("displayedDate", "isEstimated", "impactSummary", "sourceUrl", "updatedAt"),
)
EVENT = {"id": "event_id"} | {
    name: re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name) for name in _NAMES
}
"""The columns of the fields of an event, without its coins."""


class Past:
    """The catalog as known at a time, from all rows of the tables."""

    def __init__(self, tables: dict[str, list[Row]], ts: datetime) -> None:
        self.ts = ts
        self.versions = [row for row in tables["event_versions"] if row["known_from"] <= ts]
        known = {row["event_id"]: row for row in self.versions}
        self.events = {
            event_id: row
            for event_id, row in known.items()
            if row["status"] == "scheduled" and row["date"] is not None
        }
        self.cancelled = {
            event_id: (row["cancelled_at"], row["known_from"])
            for event_id, row in known.items()
            if row["status"] == "cancelled"
        }
        self.cancelled |= {
            row["event_id"]: (row["cancelled_at"], row["first_seen_at"])
            for row in tables["cancellations"]
            if row["first_seen_at"] <= ts and row["event_id"] not in known
        }
        self.ranks: dict[str, int | None] = {
            slug: None for row in self.versions for slug in row["coins"] or ()
        }
        for row in tables["coin_snapshots"]:
            if row["observed_at"] <= ts:
                self.ranks[row["coin"]] = row["rank"]

    def listed(self, lower: datetime) -> list[Row]:
        found = [row for row in self.events.values() if (row["date_end"] or row["date"]) >= lower]
        return sorted(found, key=lambda row: (row["date"], row["event_id"]))

    def cancellations(self, since: datetime) -> list[Row]:
        found = sorted(
            (at, event_id)
            for event_id, (at, known) in self.cancelled.items()
            if max(at, known) >= since
        )
        return [{"id": event_id, "cancelledAt": _text(at)} for at, event_id in found]


def _text(value: Any) -> Any:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else value


def _shown(row: Row) -> Row:
    return {name: _text(row[column]) for name, column in EVENT.items()}


def _plain(event: Row) -> Row:
    return {name: event[name] for name in EVENT}


@pytest.fixture(scope="module")
def tables(filled_home: Home) -> dict[str, list[Row]]:
    found = {}
    with reading(filled_home) as connection:
        for table, order in (
            ("event_versions", "known_from, event_id, version"),
            ("coin_snapshots", "observed_at"),
            ("cancellations", "event_id"),
        ):
            cursor = connection.execute(f"FROM {table} ORDER BY {order}")
            names = [column[0] for column in cursor.description or ()]
            found[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return found


def read_all(client: httpx.Client, path: str, ts: datetime, **parameters: Any) -> list[Row]:
    """Follow the cursors to the end; each page has the same total."""
    rows: list[Row] = []
    asked = {"limit": 100, "as_of": f"{ts.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", **parameters}
    while True:
        answer = client.get(path, params=asked)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        rows += page["data"]
        if page["meta"]["cursor"] is None or not page["data"]:
            return rows
        asked["cursor"] = page["meta"]["cursor"]
        asked.pop("since", None)


def read_export(client: httpx.Client, ts: datetime) -> list[tuple[str, str]]:
    """Return id and score of each event of the export."""
    at = {"as_of": f"{ts.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    answer = client.get("/v2/events/export", params=at)
    return [(row["id"], row["impact"]) for row in csv.DictReader(io.StringIO(answer.text))]


def random_times(random: Random, versions: list[Row], count: int) -> list[datetime]:
    """Return times at, just before and just after changes, and any others."""
    changed = [row["known_from"] for row in versions]
    found = [STARTS, NOW]
    while len(found) < count:
        at = random.choice(changed)
        anywhere = STARTS + random.randrange(int((NOW - STARTS) / MICROSECOND)) * MICROSECOND
        found.append(random.choice([at, at - MICROSECOND, at + MICROSECOND, anywhere]))
    return [max(at, STARTS) for at in found]


@pytest.mark.parametrize(
    "count", [pytest.param(4, id="some"), pytest.param(100, id="many", marks=pytest.mark.long)]
)
def test_every_route_shows_what_was_known_then(
    count: int, client: httpx.Client, tables: dict[str, list[Row]]
) -> None:
    random = Random(count)
    for ts in random_times(random, tables["event_versions"], count):
        past = Past(tables, ts)
        lower = ts.replace(hour=0, minute=0, second=0, microsecond=0)
        found = read_all(client, "/v2/events", ts)
        assert [*map(_plain, found)] == [*map(_shown, past.listed(lower))], ts
        exported = read_export(client, ts)
        everything = past.listed(datetime.min.replace(tzinfo=UTC))
        scores = ["" if row["impact"] is None else str(row["impact"]) for row in everything]
        expected = [(row["event_id"], score) for row, score in zip(everything, scores, strict=True)]
        assert exported == expected, ts
        since = ts.replace(microsecond=0) - timedelta(hours=random.randrange(90))
        cancellations = read_all(client, "/v2/events/cancellations", ts, since=_text(since))
        assert cancellations == past.cancellations(since), ts
        coins = read_all(client, "/v2/coins", ts)
        assert {row["slug"]: row["rank"] for row in coins} == past.ranks, ts
        changes = read_all(client, "/v2/events/changes", ts)
        assert [(row["id"], row["version"]) for row in changes] == [
            (row["event_id"], row["version"]) for row in past.versions
        ]
        for row in random.sample(tables["event_versions"], 8):
            check_event(client, past, row["event_id"])


def check_event(client: httpx.Client, past: Past, event_id: str) -> None:
    """Compare a single event and its history, also of an event that is not known yet."""
    at = {"as_of": f"{past.ts.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
    answer = client.get(f"/v2/events/{event_id}", params=at)
    if event_id in past.events:
        assert _plain(answer.json()) == _shown(past.events[event_id])
    else:
        assert answer.status_code == (410 if event_id in past.cancelled else 404)
    versions = [row for row in past.versions if row["event_id"] == event_id]
    answer = client.get(f"/v2/events/{event_id}/history", params=at)
    assert answer.status_code == (200 if versions else 404)
    for shown, row in zip(answer.json().get("data", ()), versions, strict=True):
        assert (shown["version"], shown["status"]) == (row["version"], row["status"])
        assert shown["kinds"] == row["change_kinds"]
        ended = row["known_to"] is not None and row["known_to"] <= past.ts
        assert (shown["knownTo"] is not None) == ended
        assert shown["event"] is None or _plain(shown["event"]) == _shown(row)
