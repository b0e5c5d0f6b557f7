"""The time of knowledge of a request: its forms, its bounds, and the headers of the answer."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.history.stories.handmade import HandmadeHome, at, coin, event
from tests.mirror.filled_home import ENDS, NOW, STARTS, mirroring
from tests.mirror.replays import order, replaying
from warehouse.home import Home

ROUTES = (
    *("/v2/events", "/v2/events/export", "/v2/events/cancellations", "/v2/events/changes"),
    *("/v2/coins", "/v2/categories", "/v2/usage"),
)


@pytest.fixture(scope="module")
def client(filled_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with mirroring(filled_home, tmp_path_factory.mktemp("mirror")) as (_, client):
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["error"]["code"], answer.json()["message"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026", "2026-02", "2026-02-26T06", "2026-02-26T06:00", "20260226T060000Z"),
        *("2026-02-26 06:00:00Z", "2026-02-26T06:00:00", "2026-02-26t06:00:00z", "1772085600"),
        *("2026-02-26T06:00:00+01:00", "2026-02-26T06:00:00%2B01:00", "2026-02-30", "2026-13-01"),
        *(
            "2026-02-26T24:00:00Z",
            "2026-02-26T06:00:60Z",
            "-2026-02-26",
            "12026-02-26",
            "0000-01-01",
        ),
        *("2026-02-26T06:00:00.Z", "2026-02-26T06:00:00.1234567890Z", "%00", "2026-02-26%00"),
        *("2026-02-26T06:00:00Z'--", "%D9%A2%D9%A0%D9%A2%D9%A6-02-26", "2026-W09-4"),
    ],
)
def test_an_unreadable_time_is_a_400_that_names_the_form(client: httpx.Client, text: str) -> None:
    for path in ROUTES:
        status, code, message = refusal(client.get(f"{path}?as_of={text}"))
        assert (status, code) == (400, "invalid_request"), path
        assert message == "as_of must be YYYY-MM-DD or an RFC 3339 instant in UTC"


@pytest.mark.parametrize("text", ["2026-02-26T06:00:00+01:00", "1 Mar 2026", "a&b", "as_of=x", ""])
def test_an_unreadable_header_is_a_400(client: httpx.Client, text: str) -> None:
    for path in ROUTES:
        status, code, message = refusal(client.get(path, headers={"X-As-Of": text}))
        assert (status, code) == (400, "invalid_request"), path
        assert message == "X-As-Of must be YYYY-MM-DD or an RFC 3339 instant in UTC"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-02-25", "2026-02-25T00:00:00Z is before the first pull"),
        ("2026-02-25T05:59:59.999999Z", "2026-02-25T05:59:59.999999Z is before the first pull"),
        ("0001-01-01", "0001-01-01T00:00:00Z is before the first pull"),
        ("2026-02-28T20:00:30.000001Z", "2026-02-28T20:00:30.000001Z is in the future"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z is in the future"),
        ("9999-12-31", "9999-12-31T00:00:00Z is in the future"),
    ],
)
def test_a_time_without_an_answer_is_a_422_that_names_the_bound(
    client: httpx.Client, text: str, reason: str
) -> None:
    bound = (
        "history starts at 2026-02-25T06:00:00Z"
        if "before" in reason
        else "the newest time is 2026-02-28T20:00:30Z"
    )
    for path in (*ROUTES, "/v2/events/unknown", "/v2/events/unknown/history", "/v2/coins/unknown"):
        for answer in (
            client.get(path, params={"as_of": text}),
            client.get(path, headers={"X-As-Of": text}),
        ):
            assert refusal(answer) == (422, "as_of_out_of_range", f"{reason}: {bound}"), path


@pytest.mark.parametrize("text", [f"{STARTS:%FT%TZ}", f"{NOW:%FT%TZ}"])
def test_the_bounds_themselves_have_an_answer(client: httpx.Client, text: str) -> None:
    for path in ROUTES:
        assert client.get(path, params={"as_of": text}).status_code == 200, path


def test_a_warehouse_without_a_pull_of_events_has_no_history(tmp_path: Path) -> None:
    small = HandmadeHome(tmp_path / "home")
    small.coins("01 09:00", coin("bitcoin"))
    small.merge()
    with mirroring(small.home, tmp_path / "mirror") as (_, client):
        status, code, message = refusal(client.get("/v2/coins?as_of=2026-02-26"))
    assert (status, code) == (422, "as_of_out_of_range")
    assert message == "Nothing was pulled yet: this warehouse has no history"


class TestBothForms:
    AT = "2026-02-26T12:30:00.000250Z"

    def test_they_have_the_same_answer_and_name_the_time(self, client: httpx.Client) -> None:
        for path in ROUTES:
            by_query = client.get(path, params={"as_of": self.AT})
            by_header = client.get(path, headers={"X-As-Of": self.AT})
            both = client.get(path, params={"as_of": self.AT}, headers={"X-As-Of": self.AT})
            for answer in (by_query, by_header, both):
                assert answer.headers["x-as-of"] == self.AT
                assert "x-as-of" in answer.headers["vary"], path
            if path != "/v2/usage":
                assert by_query.content == by_header.content == both.content, path

    def test_different_forms_of_one_time_agree(self, client: httpx.Client) -> None:
        headers = {"X-As-Of": "2026-02-26T00:00:00-00:00"}
        answer = client.get("/v2/events?as_of=2026-02-26", headers=headers)
        assert answer.headers["x-as-of"] == "2026-02-26T00:00:00Z"

    def test_two_different_times_are_refused(self, client: httpx.Client) -> None:
        for path in ROUTES:
            answer = client.get(f"{path}?as_of=2026-02-27", headers={"X-As-Of": self.AT})
            assert refusal(answer)[:2] == (400, "invalid_request"), path
            assert "different times" in refusal(answer)[2]
        twice = client.get("/v2/events?as_of=2026-02-27&as_of=2026-02-27")
        assert refusal(twice)[2] == "as_of was given more than once; give it once"
        pair = [("X-As-Of", "2026-02-27"), ("X-As-Of", "2026-02-26")]
        assert client.get("/v2/events", headers=pair).status_code == 400

    def test_an_answer_of_now_names_no_time(self, client: httpx.Client) -> None:
        for path in ROUTES:
            assert "x-as-of" not in client.get(path).headers


class TestConditionalRequests:
    def test_a_known_tag_is_a_304_that_names_the_time(self, client: httpx.Client) -> None:
        for path in ("/v2/events", "/v2/events/export", "/v2/coins", "/v2/events/cancellations"):
            at = {"as_of": "2026-02-26T12:00:00Z"}
            tag = client.get(path, params=at).headers["etag"]
            again = client.get(path, params=at, headers={"If-None-Match": tag})
            assert (again.status_code, again.content) == (304, b""), path
            assert again.headers["x-as-of"] == at["as_of"]

    def test_a_tag_of_another_time_is_known_only_if_the_answer_is_equal(
        self, client: httpx.Client
    ) -> None:
        for path in ("/v2/events", "/v2/events/export"):
            first = client.get(f"{path}?as_of=2026-02-26T08:00:00Z")
            tag = {"If-None-Match": first.headers["etag"]}
            equal = client.get(f"{path}?as_of=2026-02-26T08:00:00Z", headers=tag)
            other = client.get(f"{path}?as_of=2026-02-26T12:00:00Z", headers=tag)
            assert (equal.status_code, other.status_code) == (304, 200), path
            assert other.content != first.content

    def test_the_export_was_modified_at_the_last_pull_until_then(
        self, client: httpx.Client
    ) -> None:
        shown = {
            then: client.get(f"/v2/events/export?as_of=2026-02-26T{then}Z").headers
            for then in ("09:19:59", "09:20:00", "18:00:29")
        }
        modified = [headers["last-modified"][17:25] for headers in shown.values()]
        assert modified == ["06:05:00", "09:20:00", "09:20:00"]
        tags = [headers["etag"] for headers in shown.values()]
        assert tags[0] != tags[1] == tags[2]

    def test_head_has_the_headers_of_get(self, client: httpx.Client) -> None:
        for path in ROUTES:
            url = f"{path}?as_of=2026-02-26T12:00:00Z"
            got, head = client.get(url), client.head(url)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["x-as-of"] == "2026-02-26T12:00:00Z"
            assert head.headers.get("etag") == got.headers.get("etag"), path
            assert client.head(f"{path}?as_of=2026-02-24").status_code == 422


class TestCursors:
    def test_pages_at_one_time_join_to_the_whole_list(self, client: httpx.Client) -> None:
        path = "/v2/events?limit=100&as_of=2026-02-26T12:00:00Z"
        first = client.get(path).json()
        second = client.get(f"{path}&cursor={first['meta']['cursor']}").json()
        total = first["meta"]["total"]
        assert total == second["meta"]["total"]
        ids = [row["id"] for page in (first, second) for row in page["data"]]
        assert len(ids) == len(set(ids)) == min(total, 200)

    def test_a_cursor_continues_after_its_row_at_its_time(self, client: httpx.Client) -> None:
        then = {"as_of": "2026-02-26T08:00:00Z"}
        page = client.get("/v2/events", params={"limit": "20", **then}).json()
        cursor, last = page["meta"]["cursor"], page["data"][-1]
        whole, following = (
            client.get("/v2/events", params={"limit": "100", **then, **given}).json()
            for given in ({}, {"cursor": cursor})
        )
        expected = [
            row for row in whole["data"] if (row["date"], row["id"]) > (last["date"], last["id"])
        ]
        assert len(expected) == 80
        assert following["data"][: len(expected)] == expected
        assert following["meta"]["total"] == whole["meta"]["total"]


def test_the_last_of_two_versions_with_the_same_known_from_is_shown(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path / "home")
    story.listed("01 09:00", event("a", title="First"))
    story.export("01 09:00", event("a", title="Second"))
    story.listed("02 09:00", event("a", title="Third"))
    story.merge()
    then = {"as_of": f"{at('01 09:00'):%FT%TZ}"}
    with mirroring(story.home, tmp_path / "mirror", wall=lambda: at("02 10:00")) as (_, client):
        versions = client.get("/v2/events/a/history", params=then).json()["data"]
        assert [row["version"] for row in versions] == [1, 2]
        assert {row["knownFrom"] for row in versions} == {then["as_of"]}
        (listed,) = client.get("/v2/events", params=then).json()["data"]
        single = client.get("/v2/events/a", params=then).json()
        assert listed == single == versions[-1]["event"]
        changes = client.get("/v2/events/changes", params=then).json()["data"]
        assert [row["version"] for row in changes] == [1, 2]
        assert client.get("/v2/events/a").json()["title"] == "Third"


def test_a_time_is_compared_to_the_microsecond(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path / "home")
    story.listed("01 09:00", event("a", title="First"))
    story.listed("02 09:00", event("a", title="Second"))
    story.merge()
    second = at("02 09:00")
    with mirroring(story.home, tmp_path / "mirror", wall=lambda: at("03 10:00")) as (_, client):
        for shift_us, title in ((-1, "First"), (0, "Second"), (1, "Second")):
            then = second + timedelta(microseconds=shift_us)
            path = f"/v2/events/a?as_of={then:%FT%T.%fZ}"
            assert client.get(path).json()["title"] == title, shift_us


def test_a_cache_keeps_answers_of_different_times_apart(filled_home: Home, tmp_path: Path) -> None:
    with mirroring(filled_home, tmp_path / "mirror") as (_, client):
        for headers in ({}, {"x-as-of": ENDS.strftime("%Y-%m-%dT%H:%M:%SZ")}):
            for path in ("/v2/events", "/v2/categories", "/v2/events/export"):
                answer = client.get(path, headers=headers)
                assert answer.status_code == 200
                assert "x-as-of" in answer.headers["vary"]


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


def test_the_clock_of_a_replay_refuses_what_a_proxy_forwards(
    filled_home: Home, tmp_path: Path
) -> None:
    with replaying(filled_home, tmp_path / "replay", STARTS) as (_, client):
        for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"):
            refused = client.put("/replay/clock", json={"step": 1}, headers={name: "192.0.2.7"})
            assert refused.status_code == 403
        assert client.get("/replay/clock").json()["changes"]["known"] == 0


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


@pytest.mark.parametrize(
    "path", ["/v2/events?from=2026-02-25", "/v2/coins?tracked=false", "/v2/events/cancellations"]
)
def test_a_cursor_of_a_list_belongs_to_its_as_of(client: httpx.Client, path: str) -> None:
    then = {"limit": "1", "as_of": "2026-02-27T12:00:00Z"}
    others = ({"limit": "1", "as_of": "2026-02-28T12:00:00Z"}, {"limit": "1"})
    separator = "&" if "?" in path else "?"

    def read(parameters: dict[str, str]) -> httpx.Response:
        text = "&".join(f"{name}={value}" for name, value in parameters.items())
        return client.get(f"{path}{separator}{text}")

    foreign = (400, "invalid_request", "The cursor belongs to another list or to other filters")
    cursor = read(then).json()["meta"]["cursor"]
    assert cursor is not None
    assert read({**then, "cursor": cursor}).status_code == 200
    for other in others:
        assert refusal(read({**other, "cursor": cursor})) == foreign
    current = read({"limit": "1"}).json()["meta"]["cursor"]
    assert refusal(read({**then, "cursor": current})) == foreign
