"""The sandbox as users see it: clock, faults, control path, truth, all plans at once."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from catalog.contract.plans import Window
from catalog.sandbox.control import RequestsSeen, SandboxLayer
from catalog.sandbox.faults import FAULTS, FaultBoard, parse_faults
from catalog.sandbox.pytest_plugin import STANDS_AT
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.sandbox_clock import SandboxClock
from catalog.sandbox.world_store import Views, new_view
from catalog.server.accounts import ServiceDirError
from catalog.server.app import ServerOptions
from catalog.server.exchange import Exchange, attach
from catalog.server.store import EventQuery
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.test_hosting import wait_until_closed

ALL_DATES = Window(datetime(2017, 1, 1, tzinfo=UTC), None)


@pytest.fixture(scope="module")
def key(almanac_sandbox: Sandbox) -> str:
    return almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)


@pytest.fixture
def client(almanac_sandbox: Sandbox, key: str) -> Iterator[httpx.Client]:
    # Without `verify=False` each client reads the certificates of the machine, 20 ms.
    with httpx.Client(
        base_url=almanac_sandbox.base_url,
        headers={"x-api-key": key},
        timeout=HANGS_AFTER_S,
        verify=False,
    ) as client:
        yield client


def all_rows(client: httpx.Client, path: str, **headers: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get(path + (f"&cursor={cursor}" if cursor else ""), headers=headers)
        assert answer.status_code == 200, answer.text
        rows += answer.json()["data"]
        cursor = answer.json()["meta"]["cursor"]
    return rows


class TestTruth:
    @pytest.mark.parametrize("now", ["2019-05-05T01:02:03Z", "2026-03-02T12:00:00Z"])
    def test_the_list_is_the_world_of_a_minute_ago(
        self, almanac_sandbox: Sandbox, client: httpx.Client, now: str
    ) -> None:
        instant = datetime.fromisoformat(now)
        world = almanac_sandbox.truth()
        today = instant.replace(hour=0, minute=0, second=0)
        expected = {
            event.id: event
            for event in world.events_at(instant - timedelta(seconds=60)).values()
            if (event.date_end or event.date) >= today
        }
        path = "/v2/events?limit=100"
        rows = all_rows(client, path, **{"Sandbox-Now": now})
        assert [row["id"] for row in rows] == [
            event.id for event in sorted(expected.values(), key=lambda e: (e.date, e.id))
        ]
        names = {category.id: category.name for category in world.categories}
        for row in rows:
            event = expected[row["id"]]
            assert row["title"] == event.title
            assert row["description"] == event.description
            assert row["impact"] == event.impact
            assert datetime.fromisoformat(row["date"]) == event.date
            assert [coin["slug"] for coin in row["coins"]] == list(event.coins)
            assert row["categories"] == [names[name] for name in event.categories]

    def test_a_cancelled_and_a_withdrawn_event_are_410_and_404(
        self, almanac_sandbox: Sandbox, client: httpx.Client
    ) -> None:
        world = almanac_sandbox.truth()
        changes = world.changes(STANDS_AT - timedelta(days=20), STANDS_AT - timedelta(minutes=2))
        seen = {"cancelled": 0, "withdrawn": 0}
        for change in changes:
            status = world.status_at(change.event_id, STANDS_AT - timedelta(seconds=60))
            if status in seen:
                seen[status] += 1
                answer = client.get(f"/v2/events/{change.event_id}")
                assert answer.status_code == (410 if status == "cancelled" else 404)
        assert min(seen.values()) >= 5

    def test_a_view_edited_step_by_step_equals_a_new_one(self, almanac_sandbox: Sandbox) -> None:
        world = almanac_sandbox.truth()
        # The catalog of that year is large enough for every kind of change, and quickly compared.
        start = datetime(2019, 2, 1, 5, tzinfo=UTC)
        stepped = Views(world)
        hours = [0, 1, 200, 190, 2400]
        edited = world.changes(start, start + timedelta(hours=200))
        assert {kind for change in edited for kind in change.kinds} >= {
            *("created", "rescheduled", "rescored", "revised", "made_exact", "made_estimated"),
            *("verified", "withdrawn", "restored", "cancelled"),
        }
        for hour in hours:
            instant = start + timedelta(hours=hour)
            near, (fresh, _) = stepped.at(instant), new_view(world, instant)
            for query in (
                EventQuery(ALL_DATES),
                EventQuery(ALL_DATES, coins=frozenset({"bitcoin", "ethereum"})),
                EventQuery(ALL_DATES, categories=frozenset({"release"})),
                EventQuery(ALL_DATES, keyword="mainnet"),
                EventQuery(Window(instant, None), order="impact_desc"),
            ):
                assert list(near.iter_events(query)) == list(fresh.iter_events(query))
            since = start - timedelta(days=3000)
            both = [v.cancellations(since=since, after=None, limit=10**6) for v in (near, fresh)]
            assert both[0] == both[1]
            assert near.book.coins == fresh.book.coins


class TestClock:
    def test_it_stands_still_is_set_advanced_and_runs(self) -> None:
        wall = [datetime(2026, 1, 1, tzinfo=UTC)]
        clock = SandboxClock(wall=lambda: wall[0])
        assert clock.running
        wall[0] += timedelta(seconds=5)
        assert clock.now() == wall[0]
        clock.set(datetime(2020, 1, 1, tzinfo=UTC))
        wall[0] += timedelta(days=9)
        assert clock.now() == datetime(2020, 1, 1, tzinfo=UTC)
        clock.advance(timedelta(hours=1))
        clock.run()
        wall[0] += timedelta(seconds=7)
        assert clock.now() == datetime(2020, 1, 1, 1, 0, 7, tzinfo=UTC)

    def test_naive_and_far_instants_are_refused(self) -> None:
        for instant in (datetime(2026, 1, 1), datetime(1999, 1, 1, tzinfo=UTC)):  # noqa: DTZ001
            with pytest.raises(ValueError, match=r"timezone|outside"):
                SandboxClock(instant)

    def test_a_request_may_have_a_time_of_its_own(self, client: httpx.Client) -> None:
        answer = client.get("/v2/events", headers={"Sandbox-Now": "2021-07-04T05:06:07Z"})
        assert answer.headers["date"] == "Sun, 04 Jul 2021 05:06:07 GMT"
        assert client.get("/v2/events").headers["date"] == "Mon, 02 Mar 2026 12:00:00 GMT"
        usage = client.get("/v2/usage", headers={"Sandbox-Now": "2021-07-04"}).json()
        assert usage["period"]["start"] == "2021-07-01T00:00:00Z"
        for bad in ("yesterday", "2021-07-04T05:06:07", "1970-01-01", ""):
            assert client.get("/v2/events", headers={"Sandbox-Now": bad}).status_code == 400


class TestControlPath:
    def test_the_clock_is_moved_over_http(
        self, client: httpx.Client, almanac_sandbox: Sandbox
    ) -> None:
        try:
            body = client.put("/sandbox/clock", json={"now": "2026-03-05T00:00:00Z"}).json()
            assert body == {"now": "2026-03-05T00:00:00Z", "running": False}
            client.put("/sandbox/clock", json={"advance_s": 90})
            assert client.get("/sandbox/clock").json()["now"] == "2026-03-05T00:01:30Z"
            assert client.put("/sandbox/clock", json={"running": True}).json()["running"]
        finally:
            almanac_sandbox.set_clock(STANDS_AT)

    @pytest.mark.parametrize(
        "body",
        [
            {"now": "2026-03-05T00:00:00"},
            {"now": "2027-01-01T00:00:00Z", "advance_s": 1e12},
            {"nov": 1},
            {"now": 5},
            {"advance_s": 1e12},
            [],
            {"now": "1066-01-01T00:00:00Z"},
        ],
    )
    def test_a_wrong_order_is_a_400_and_changes_nothing(
        self, client: httpx.Client, body: object
    ) -> None:
        answer = client.put("/sandbox/clock", json=body)
        assert answer.status_code == 400
        assert client.get("/sandbox/clock").json()["now"] == "2026-03-02T12:00:00Z"

    def test_its_answers_and_refusals_have_the_sandboxs_date(self, client: httpx.Client) -> None:
        for answer in (
            client.get("/sandbox/clock"),
            client.get("/sandbox/nothing"),
            client.get("/v2/events", headers={"Sandbox-Now": "never"}),
        ):
            assert answer.headers["date"] == "Mon, 02 Mar 2026 12:00:00 GMT"

    def test_it_answers_loopback_names_alone(self, client: httpx.Client) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", ""):
            answer = client.get("/sandbox/clock", headers={"Host": host})
            assert answer.status_code == 403, host
        for host in ("localhost", "localhost:8650", "127.0.0.1", "[::1]:80"):
            assert client.get("/sandbox/clock", headers={"Host": host}).status_code == 200, host

    def test_half_a_body_does_not_hold_its_connection(self, almanac_sandbox: Sandbox) -> None:
        head = b"PUT /sandbox/clock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
        wait_until_closed(almanac_sandbox.port, head)

    def test_unknown_controls_and_methods(self, client: httpx.Client) -> None:
        assert client.get("/sandbox/nothing").status_code == 404
        assert client.post("/sandbox/clock").status_code == 405

    def test_the_log_counts_requests_and_keeps_no_key(self, client: httpx.Client, key: str) -> None:
        client.delete("/sandbox/requests")
        client.get("/v2/events?limit=1")
        client.get("/v2/events?limit=0")
        log = client.get("/sandbox/requests")
        assert [(row["path"], row["query"], row["status"]) for row in log.json()["requests"]] == [
            ("/v2/events", "limit=1", 200),
            ("/v2/events", "limit=0", 400),
        ]
        assert key not in log.text

    def test_a_request_is_in_the_log_before_its_answer_is_sent(self) -> None:
        seen = RequestsSeen()
        logged_at_each_message: list[int] = []

        async def server(scope: Scope, receive: Receive, send: Send) -> None:
            attach(scope, Exchange(now=STANDS_AT))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        async def send(message: Message) -> None:
            logged_at_each_message.append(len(seen.all()))

        async def receive() -> Message:
            raise AssertionError("the server reads no body")

        layer = SandboxLayer(
            server,
            clock=SandboxClock(STANDS_AT),
            faults=FaultBoard(),
            seen=seen,
            on_clock_moved=lambda: None,
        )
        scope = {
            "type": "http",
            "path": "/v2/events",
            "method": "GET",
            "query_string": b"",
            "headers": [],
        }
        asyncio.run(layer(scope, receive, send))
        assert logged_at_each_message == [1, 1]


@pytest.fixture(scope="module")
def hasty() -> Iterator[Sandbox]:
    """A sandbox of 2018 whose time limit is short."""
    options = ServerOptions(time_limit_s=0.4)
    with Sandbox(now=datetime(2018, 3, 1, 12, tzinfo=UTC), options=options) as sandbox:
        yield sandbox


class TestFaults:
    def request(
        self, client: httpx.Client, faults: str, path: str = "/v2/events?limit=3"
    ) -> httpx.Response:
        return client.get(path, headers={"Sandbox-Faults": faults})

    def test_every_fault_is_read_from_its_written_form(self) -> None:
        for name in FAULTS:
            assert parse_faults(f"{name}*2@0.5~export")[0].name == name
        for wrong in (
            "nope",
            "storm=x",
            "drop=1",
            "drop=-1",
            "slow=1e9",
            "storm*-1",
            "storm*0",
            "storm@2",
            "html=1",
            "unavailable=500",
            "drift=sideways",
            "storm storm",
        ):
            with pytest.raises(ValueError):
                parse_faults(wrong)

    def test_a_storm_is_a_429_that_counts_nothing(self, client: httpx.Client) -> None:
        before = client.get("/v2/usage").json()["used"]
        for value, header in (("", "1"), ("=7", "7"), ("=none", None)):
            answer = self.request(client, f"storm{value}")
            assert answer.status_code == 429
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert answer.headers.get("retry-after") == header
        assert self.request(client, "quota").json()["error"]["code"] == "quota_exceeded"
        assert client.get("/v2/usage").json()["used"] == before + 1

    def test_errors_in_place_of_the_answer(self, client: httpx.Client) -> None:
        answer = self.request(client, "error=0.05")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert answer.elapsed >= timedelta(seconds=0.05)
        assert self.request(client, "unavailable=502").status_code == 502
        html = self.request(client, "html")
        assert (html.status_code, html.headers["content-type"]) == (200, "text/html")
        assert self.request(client, "empty").content == b""
        assert self.request(client, "slow=0.05").elapsed >= timedelta(seconds=0.05)

    @pytest.mark.parametrize("path", ["/v2/events?limit=2", "/v2/events/export?from=2018-03-01"])
    @pytest.mark.parametrize("faults", ["slow=900", "error=900", "slow=900,html"])
    def test_the_time_limit_covers_the_delays_of_the_sandbox(
        self, hasty: Sandbox, path: str, faults: str
    ) -> None:
        headers = {"x-api-key": hasty.keys["elite"], "Sandbox-Faults": faults}
        answer = httpx.get(hasty.base_url + path, headers=headers, timeout=HANGS_AFTER_S)
        assert answer.status_code == 500
        assert answer.json()["message"].startswith("The request ran longer than 30 seconds")

    @pytest.mark.parametrize(
        ("asked", "fixed", "made"), [(None, 200, 429), (60.0, 429, 429), (0.0, 200, 200)]
    )
    def test_fixed_keys_have_no_export_interval_unless_it_is_asked_for(
        self, asked: float | None, fixed: int, made: int
    ) -> None:
        export = "/v2/events/export?from=2018-03-01&to=2018-03-02"
        now = datetime(2018, 3, 1, 12, tzinfo=UTC)
        with Sandbox(now=now, export_interval_s=asked) as sandbox:
            for key, second in ((sandbox.keys["elite"], fixed), (sandbox.new_key("elite"), made)):
                answers = [
                    httpx.get(
                        sandbox.base_url + export, headers={"x-api-key": key}, timeout=HANGS_AFTER_S
                    )
                    for _ in range(2)
                ]
                assert [answer.status_code for answer in answers] == [200, second]

    def test_a_slow_or_failing_request_counts_and_one_refused_before_the_routes_does_not(
        self, hasty: Sandbox
    ) -> None:
        key = hasty.new_key("pro")

        def usage() -> dict[str, int] | None:
            """Return the usage; None if a busy machine exceeded the short time limit."""
            answer = httpx.get(
                hasty.base_url + "/v2/usage", headers={"x-api-key": key}, timeout=HANGS_AFTER_S
            )
            return answer.json() if answer.is_success else None

        for faults in ("slow=0.01", "error", "error=0.01", "storm", "unavailable"):
            headers = {"x-api-key": key, "Sandbox-Faults": faults}
            httpx.get(hasty.base_url + "/v2/coins", headers=headers, timeout=HANGS_AFTER_S)
        assert wait_for(usage)["used"] == 4

    @pytest.mark.parametrize("path", ["/v2/events?limit=50", "/v2/events/export?from=2026-03-01"])
    def test_a_dropped_body_breaks_the_connection_and_a_truncated_one_ends_cleanly(
        self, client: httpx.Client, path: str
    ) -> None:
        whole = client.get(path).content
        with pytest.raises(httpx.RemoteProtocolError):
            self.request(client, "drop=0.4", path)
        truncated = self.request(client, "truncate=0.4", path)
        assert truncated.status_code == 200
        assert truncated.content == whole[: int(len(whole) * 0.4)]

    def test_cursors_repeat_and_cycle(self, client: httpx.Client) -> None:
        path = "/v2/events?limit=3"
        first = self.request(client, "repeat_cursor", path).json()["meta"]["cursor"]
        second = self.request(client, "repeat_cursor", f"{path}&cursor={first}").json()
        assert second["meta"]["cursor"] == first
        a = self.request(client, "cycle_cursor", path).json()["meta"]["cursor"]
        b = self.request(client, "cycle_cursor", f"{path}&cursor={a}").json()["meta"]["cursor"]
        c = self.request(client, "cycle_cursor", f"{path}&cursor={b}").json()["meta"]["cursor"]
        assert a != b
        assert c == a

    def test_rows_duplicated_and_shifted_between_pages(self, client: httpx.Client) -> None:
        path = "/v2/events?limit=3"
        plain = [row["id"] for row in client.get("/v2/events?limit=6").json()["data"]]
        for fault, ids in (("duplicate_rows", plain[2:6]), ("shift_rows", plain[4:6])):
            cursor = self.request(client, fault, path).json()["meta"]["cursor"]
            page = self.request(client, fault, f"{path}&cursor={cursor}").json()
            assert [row["id"] for row in page["data"]] == ids, fault

    def test_the_schema_drifts(self, client: httpx.Client) -> None:
        for value, removed, added in (
            ("extra", None, "sentiment"),
            ("missing", "title", None),
            ("rename", "title", "headline"),
        ):
            row = self.request(client, f"drift={value}").json()["data"][0]
            header = self.request(
                client, f"drift={value}", "/v2/events/export?from=2026-03-01"
            ).text
            columns = header.split("\r\n")[0].split(",")
            for names in (row, columns):
                assert removed is None or removed not in names
                assert added is None or added in names
        assert isinstance(self.request(client, "drift=retype").json()["data"][0]["title"], dict)

    def test_a_wrong_header_is_a_400(self, client: httpx.Client) -> None:
        assert self.request(client, "nope").status_code == 400

    def test_the_board_counts_down_selects_paths_and_draws_by_probability(self) -> None:
        board = FaultBoard("storm*2~events,html@0.5", random=iter([0.4, 0.6, 0.4, 0.6]).__next__)
        drawn = [
            [fault.name for fault in board.draw(path)]
            for path in ("/v2/events", "/v2/coins", "/v2/events/x", "/v2/events")
        ]
        assert drawn == [["storm", "html"], [], ["storm", "html"], []]
        board.clear()
        assert board.on() == []

    def test_faults_are_switched_over_http_and_in_python(
        self, client: httpx.Client, almanac_sandbox: Sandbox
    ) -> None:
        client.put("/sandbox/faults", json={"faults": "html*1"})
        assert client.get("/v2/events").headers["content-type"] == "text/html"
        assert client.get("/v2/events").headers["content-type"] == "application/json"
        almanac_sandbox.faults.set("storm")
        try:
            assert client.get("/v2/events").status_code == 429
            assert client.get("/healthz").status_code == 200
        finally:
            almanac_sandbox.faults.clear()
        answer = client.put("/sandbox/faults", json={"faults": "nope"})
        assert answer.status_code == 400
        assert "nope" in answer.json()["message"]


class TestAllPlansAtOnce:
    def test_the_fixed_keys(self, almanac_sandbox: Sandbox) -> None:
        for plan, key in almanac_sandbox.keys.items():
            assert key == f"sandbox-{plan}"
            answer = httpx.get(
                almanac_sandbox.base_url + "/v2/usage",
                headers={"x-api-key": key},
                timeout=HANGS_AFTER_S,
            )
            assert answer.json()["plan"] == plan

    def test_a_folder_of_another_world_is_refused(self, tmp_path: Path) -> None:
        early = datetime(2017, 6, 1, tzinfo=UTC)
        with Sandbox(seed=1, now=early, state_dir=tmp_path):
            pass
        with pytest.raises(ServiceDirError, match="belongs to sandbox seed=1 pace=1"):
            Sandbox(seed=2, now=early, state_dir=tmp_path).start()

    def test_a_cursor_is_valid_after_a_restart_of_the_same_sandbox(
        self, almanac_sandbox: Sandbox, client: httpx.Client
    ) -> None:
        cursor = client.get("/v2/events?limit=3").json()["meta"]["cursor"]
        with Sandbox(now=STANDS_AT) as restarted:
            answer = httpx.get(
                f"{restarted.base_url}/v2/events?limit=3&cursor={cursor}",
                headers={"x-api-key": restarted.keys["elite"]},
                timeout=HANGS_AFTER_S,
            )
        expected = client.get(f"/v2/events?limit=3&cursor={cursor}").json()
        assert json.loads(answer.text) == expected
