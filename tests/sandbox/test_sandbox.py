from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from catalog import ServerError
from catalog.sandbox.faults import FAULTS, FaultBoard, parse_faults
from catalog.sandbox.sandbox import Sandbox
from tests.hangs import HANGS_AFTER_S

NOW = datetime(2018, 3, 2, 12, tzinfo=UTC)
EARLY = datetime(2017, 1, 2, tzinfo=UTC)
"""The catalog was small, so that a sandbox starts in no time."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(now=NOW, export_interval_s=0) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Iterator[httpx.Client]:
    key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    with connected(sandbox, key) as client:
        yield client


def connected(sandbox: Sandbox, key: str) -> httpx.Client:
    # Without `verify=False` each client reads the certificates of the machine, 20 ms.
    return httpx.Client(
        base_url=sandbox.base_url, headers={"x-api-key": key}, timeout=HANGS_AFTER_S, verify=False
    )


class TestClock:
    def test_a_request_may_have_a_time_of_its_own(self, client: httpx.Client) -> None:
        answer = client.get("/v2/events", headers={"Sandbox-Now": "2017-07-04T05:06:07Z"})
        assert answer.headers["date"] == "Tue, 04 Jul 2017 05:06:07 GMT"
        assert client.get("/v2/events").headers["date"] == "Fri, 02 Mar 2018 12:00:00 GMT"
        usage = client.get("/v2/usage", headers={"Sandbox-Now": "2017-07-04"}).json()
        assert usage["period"]["start"] == "2017-07-01T00:00:00Z"
        for bad in ("yesterday", "2021-07-04T05:06:07", "1970-01-01", ""):
            assert client.get("/v2/events", headers={"Sandbox-Now": bad}).status_code == 400


class TestControlPath:
    def test_the_clock_is_moved_over_http(self, client: httpx.Client, sandbox: Sandbox) -> None:
        try:
            body = client.put("/sandbox/clock", json={"now": "2018-03-05T00:00:00Z"}).json()
            assert body == {"now": "2018-03-05T00:00:00Z", "running": False}
            client.put("/sandbox/clock", json={"advance_s": 90})
            assert client.get("/sandbox/clock").json()["now"] == "2018-03-05T00:01:30Z"
            assert client.put("/sandbox/clock", json={"running": True}).json()["running"]
        finally:
            sandbox.set_clock(NOW)

    def test_a_wrong_order_is_a_400_and_changes_nothing(self, client: httpx.Client) -> None:
        for body in (
            *({"now": "2018-03-05T00:00:00"}, {"nov": 1}, {"now": 5}, {"advance_s": 1e12}, []),
            *({"now": "1066-01-01T00:00:00Z"}, {"now": "2019-01-01T00:00:00Z", "advance_s": 1e12}),
        ):
            assert client.put("/sandbox/clock", json=body).status_code == 400, body
        assert client.get("/sandbox/clock").json()["now"] == "2018-03-02T12:00:00Z"

    def test_it_answers_loopback_names_and_known_controls_alone(self, client: httpx.Client) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", ""):
            answer = client.get("/sandbox/clock", headers={"Host": host})
            assert answer.status_code == 403, host
        for host in ("localhost", "localhost:8650", "127.0.0.1", "[::1]:80"):
            assert client.get("/sandbox/clock", headers={"Host": host}).status_code == 200, host
        assert client.get("/sandbox/nothing").status_code == 404
        assert client.post("/sandbox/clock").status_code == 405

    def test_the_log_counts_requests_and_keeps_no_key(self, client: httpx.Client) -> None:
        client.delete("/sandbox/requests")
        client.get("/v2/events?limit=1")
        client.get("/v2/events?limit=0")
        log = client.get("/sandbox/requests")
        assert [(row["path"], row["query"], row["status"]) for row in log.json()["requests"]] == [
            ("/v2/events", "limit=1", 200),
            ("/v2/events", "limit=0", 400),
        ]
        assert client.headers["x-api-key"] not in log.text


class TestFaults:
    def request(
        self, client: httpx.Client, faults: str, path: str = "/v2/events?limit=3"
    ) -> httpx.Response:
        return client.get(path, headers={"Sandbox-Faults": faults})

    def test_every_fault_is_read_from_its_written_form(self) -> None:
        for name in FAULTS:
            assert parse_faults(f"{name}*2@0.5~export")[0].name == name
        for wrong in (
            *("nope", "storm=x", "drop=1", "drop=-1", "slow=1e9", "storm*-1", "storm*0", "storm@2"),
            *("html=1", "unavailable=500", "storm storm"),
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

    @pytest.mark.parametrize("path", ["/v2/events?limit=50", "/v2/events/export?from=2018-03-01"])
    def test_a_dropped_body_breaks_the_connection(self, client: httpx.Client, path: str) -> None:
        whole = client.get(path).content
        with pytest.raises(httpx.RemoteProtocolError):
            self.request(client, "drop=0.4", path)
        truncated = self.request(client, "truncate=0.4", path)
        assert truncated.status_code == 200
        assert truncated.content == whole[: int(len(whole) * 0.4)]

    def test_the_board_counts_down_selects_paths_and_draws_by_probability(self) -> None:
        board = FaultBoard("storm*2~events,html@0.5", random=iter([0.4, 0.6, 0.4, 0.6]).__next__)
        drawn = [
            [fault.name for fault in board.draw(path)]
            for path in ("/v2/events", "/v2/coins", "/v2/events/x", "/v2/events")
        ]
        assert drawn == [["storm", "html"], [], ["storm", "html"], []]
        board.clear()
        assert board.on() == []

    def test_faults_are_set_over_http_and_in_python(
        self, client: httpx.Client, sandbox: Sandbox
    ) -> None:
        client.put("/sandbox/faults", json={"faults": "html*1"})
        kinds = [client.get("/v2/events").headers["content-type"] for _ in range(2)]
        assert kinds == ["text/html", "application/json"]
        sandbox.faults.set("storm")
        statuses = [client.get(path).status_code for path in ("/v2/events", "/healthz")]
        sandbox.faults.clear()
        assert statuses == [429, 200]
        answer = client.put("/sandbox/faults", json={"faults": "nope"})
        assert answer.status_code == 400
        assert "nope" in answer.json()["message"]


class TestAllPlansAtOnce:
    def test_a_folder_of_another_world_is_refused(self, tmp_path: Path) -> None:
        with Sandbox(seed=1, now=EARLY, state_dir=tmp_path):
            pass
        with pytest.raises(ServerError, match="belongs to sandbox seed=1 pace=1"):
            Sandbox(seed=2, now=EARLY, state_dir=tmp_path).start()
