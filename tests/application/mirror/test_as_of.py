"""The time of knowledge of a request: its forms, its bounds, and the headers of the answer."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.application.mirror.filled_home import ENDS, NOW, STARTS, mirroring
from tests.application.mirror.replays import order, replaying
from tests.history.stories.handmade import HandmadeHome, coin
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


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026", "2026-02", "2026-02-26T06:00", "20260226T060000Z", "1772085600"),
        *("2026-02-26 06:00:00Z", "2026-02-26T06:00:00", "2026-02-26T06:00:00+01:00"),
        *("2026-02-30", "2026-02-26T06:00:60Z", "0000-01-01", "2026-02-26T06:00:00Z'--", "a&b"),
    ],
)
def test_an_unreadable_time_is_a_400_that_names_the_form(client: httpx.Client, text: str) -> None:
    for path in ROUTES:
        by_query = client.get(path, params={"as_of": text})
        by_header = client.get(path, headers={"X-As-Of": text})
        assert refusal(by_query) == (400, "invalid_request", f"as_of {FORM}"), path
        assert refusal(by_header) == (400, "invalid_request", f"X-As-Of {FORM}"), path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-02-25", "2026-02-25T00:00:00Z is before the first pull"),
        ("2026-02-25T05:59:59.999999Z", "2026-02-25T05:59:59.999999Z is before the first pull"),
        ("0001-01-01", "0001-01-01T00:00:00Z is before the first pull"),
        ("2026-02-28T20:00:30.000001Z", "2026-02-28T20:00:30.000001Z is in the future"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z is in the future"),
    ],
)
def test_a_time_without_an_answer_is_a_422_that_names_the_bound(
    client: httpx.Client, text: str, reason: str
) -> None:
    first, newest = (
        "history starts at 2026-02-25T06:00:00Z",
        "the newest time is 2026-02-28T20:00:30Z",
    )
    message = f"{reason}: {first if 'before' in reason else newest}"
    for path in (*ROUTES, *UNKNOWN):
        for given in ({"params": {"as_of": text}}, {"headers": {"X-As-Of": text}}):
            answer = client.get(path, **given)
            assert refusal(answer) == (422, "as_of_out_of_range", message), path


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


def test_a_client_asks_again_in_a_replay_since_its_cache_knows_real_time(
    filled_home: Home, tmp_path: Path
) -> None:
    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):
        for path in ("/v2/events", "/v2/categories"):
            first = client.get(path)
            assert first.headers["cache-control"] == "private, no-cache"
            again = client.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.headers["cache-control"]) == (304, "private, no-cache")
            past = client.get(path, params={"as_of": STARTS.strftime("%Y-%m-%dT%H:%M:%SZ")})
            assert "max-age" in past.headers["cache-control"]


def test_a_cursor_that_begins_in_the_future_of_a_replay_begins_there(
    filled_home: Home, tmp_path: Path
) -> None:
    later = STARTS + timedelta(days=2)
    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):
        text = later.strftime("%Y-%m-%dT%H:%M:%SZ")
        page = client.get("/v2/events/changes", params={"since": text}).json()
        assert page["data"] == []
        order(client, now=ENDS.strftime("%Y-%m-%dT%H:%M:%SZ"))
        following = {"cursor": page["meta"]["cursor"], "limit": 1}
        (change,) = client.get("/v2/events/changes", params=following).json()["data"]
        assert datetime.fromisoformat(change["knownFrom"]) > later


@pytest.mark.parametrize("path", ["/v2/events", "/v2/coins", "/v2/events/cancellations"])
def test_a_cursor_of_a_list_belongs_to_its_as_of(client: httpx.Client, path: str) -> None:
    then = {"limit": "1", "as_of": "2026-02-27T12:00:00Z"}
    other = {"limit": "1", "as_of": "2026-02-28T12:00:00Z"}
    cursor = client.get(path, params=then).json()["meta"]["cursor"]
    assert client.get(path, params={**then, "cursor": cursor}).status_code == 200
    for asked in (other, {"limit": "1"}):
        assert client.get(path, params={**asked, "cursor": cursor}).status_code == 400
