"""The replay: its clock and control path, and answers that follow the clock."""

import time
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from queue import SimpleQueue

import pytest

from almanac.change_digest import ChangeDigest
from almanac.errors import WarehouseError
from application.web.mirror.mirror import CONTROL_PATH
from application.web.mirror.replay import ReplayState
from tests.application.mirror.filled_home import ENDS, STARTS, mirroring
from tests.application.mirror.replays import (
    CHANGES,
    change_log,
    log_hash,
    order,
    read_changes,
    replaying,
)
from tests.hangs import HANGS_AFTER_S
from warehouse.home import Home

START = STARTS + timedelta(hours=1)
SECOND_DAY = STARTS + timedelta(days=1, hours=2)
ROUTES = ("/v2/events", "/v2/events/export", "/v2/events/cancellations", "/v2/coins")


def test_all_answers_follow_the_clock(filled_home: Home, tmp_path: Path) -> None:
    with (
        mirroring(filled_home, tmp_path) as (_, mirror),
        replaying(filled_home, tmp_path, START) as (_, client),
    ):
        for now in (START, SECOND_DAY):
            order(client, now=now.isoformat())
            for path in ROUTES:
                answer = client.get(path)
                expected = mirror.get(path, params={"as_of": f"{now:%FT%TZ}"})
                assert answer.status_code == expected.status_code == 200
                assert parsedate_to_datetime(answer.headers["date"]) == now
                # The cursors of two servers differ.
                shown, past = (text.partition('"meta"')[0] for text in (answer.text, expected.text))
                assert shown == past, path


def test_changes_become_known_with_the_clock(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path, START) as (_, client):
        assert read_changes(client) == []
        order(client, now=SECOND_DAY.isoformat())
        seen = [(each["id"], each["version"]) for each in read_changes(client)]
        assert seen == [each[:2] for each in change_log(filled_home, START, SECOND_DAY)]
        event_id = seen[-1][0]
        versions = client.get(f"/v2/events/{event_id}/history").json()["data"]
        assert versions[-1]["knownTo"] is None
        assert all(datetime.fromisoformat(each["knownFrom"]) <= SECOND_DAY for each in versions)
        late = client.get(CHANGES, params={"as_of": f"{SECOND_DAY + timedelta(seconds=1):%FT%TZ}"})
        assert late.status_code == 422


def test_the_end_has_the_count_and_hash_of_all_changes(filled_home: Home, tmp_path: Path) -> None:
    log = change_log(filled_home, START, ENDS)
    ends: SimpleQueue[ReplayState] = SimpleQueue()
    with replaying(filled_home, tmp_path, START, ENDS, on_end=ends.put) as (_, client):
        begin = client.get(CONTROL_PATH).json()
        assert begin["changes"] == {"known": 0, "total": len(log), "sha256": log_hash([])}
        state = order(client, now=ENDS.isoformat())
        assert (state["ended"], state["running"]) == (True, False)
        assert state["changes"] == dict(known=len(log), total=len(log), sha256=log_hash(log))
        digest = ChangeDigest()
        for each in read_changes(client):
            known_from = datetime.fromisoformat(each["knownFrom"])
            digest.add(each["id"], each["version"], known_from)
        assert (digest.count, digest.hexdigest()) == (len(log), log_hash(log))
        end = ends.get(timeout=HANGS_AFTER_S).changes
    assert (end.known, end.sha256, ends.empty()) == (len(log), log_hash(log), True)


def test_each_step_makes_one_more_time_of_changes_known(filled_home: Home, tmp_path: Path) -> None:
    log = change_log(filled_home, START, ENDS)
    with replaying(filled_home, tmp_path, START, ENDS) as (_, client):
        place = 0
        for _ in range(5):
            state = order(client, step=1)
            known = state["changes"]["known"]
            at = datetime.fromisoformat(state["now"])
            assert known > place
            assert f"{at:%Y-%m-%dT%H:%M:%S.%fZ}" == log[place][2] == log[known - 1][2]
            assert state["changes"]["sha256"] == log_hash(log[:known])
            place = known
        assert order(client, step=len(log))["ended"]
        back = order(client, now=START.isoformat())
        assert back["changes"]["sha256"] == log_hash([])


def test_a_running_clock_passes_time_at_its_speed(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path, START, ENDS) as (_, client):
        assert client.get(CONTROL_PATH).json()["now"] == f"{START:%FT%TZ}"
        before = time.monotonic()
        state = order(client, speed=3600, running=True)
        assert (state["speed"], state["running"]) == (3600, True)
        while datetime.fromisoformat(state["now"]) < START + timedelta(hours=1):
            state = client.get(CONTROL_PATH).json()
        assert time.monotonic() - before > 0.5
        paused = order(client, running=False)
        assert client.get(CONTROL_PATH).json()["now"] == paused["now"]
        advanced = order(client, advance_s=60)["now"]
        passed = datetime.fromisoformat(advanced) - datetime.fromisoformat(paused["now"])
        assert passed == timedelta(seconds=60)
        assert order(client, advance_s=1e8)["ended"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"now": "soon"}, "is not a time"),
        ({"now": "2026-02-27T00:00:00"}, "no time zone"),
        ({"now": "2036-01-01T00:00:00Z"}, "outside the replay"),
        ({"advance_s": 1e300}, "<= 10000000000.0 - at `$.advance_s`"),
        ({"step": 0}, ">= 1 - at `$.step`"),
        ({"step": 10**25}, "$.step"),
        ({"speed": 0}, "> 0.0 - at `$.speed`"),
        ({"speed": 1e308}, "<= 1000000000.0 - at `$.speed`"),
        ({"speed": -1, "advance_s": 60}, "> 0.0 - at `$.speed`"),
        ({"until": "2026-01-01"}, "until"),
    ],
    ids=[
        *("unreadable", "zone", "outside", "far", "step", "many"),
        *("speed", "fast", "both", "unknown"),
    ],
)
def test_a_wrong_order_changes_nothing(
    filled_home: Home, tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    with replaying(filled_home, tmp_path, SECOND_DAY) as (_, client):
        before = client.get(CONTROL_PATH).json()
        answer = client.put(CONTROL_PATH, json=fields)
        assert (answer.status_code, reason in answer.json()["message"]) == (400, True), answer.text
        assert client.get(CONTROL_PATH).json() == before


def test_the_control_path_refuses_other_sites(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path, START) as (replay, client):
        for headers in (
            {"host": "evil.example"},
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            for method in ("GET", "PUT"):
                answer = client.request(method, CONTROL_PATH, headers=headers, content=b"{}")
                assert answer.status_code == (421 if "host" in headers else 403)
        assert client.delete(CONTROL_PATH).status_code == 405
        assert replay.clock.now() == START


def test_a_cursor_of_another_replay_is_refused(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path, START) as (_, client):
        cursor = client.get(CHANGES).json()["meta"]["cursor"]
        assert client.get(CHANGES, params={"cursor": cursor}).status_code == 200
    with replaying(filled_home, tmp_path, SECOND_DAY) as (_, client):
        assert client.get(CHANGES, params={"cursor": cursor}).status_code == 400
    with replaying(filled_home, tmp_path, START) as (_, client):
        assert client.get(CHANGES, params={"cursor": cursor}).status_code == 200


@pytest.mark.parametrize(
    ("start", "until"),
    [
        (STARTS - timedelta(seconds=1), None),
        (START, ENDS + timedelta(days=30)),
        (ENDS, START),
        (START, START),
    ],
    ids=["early", "late", "backward", "empty"],
)
def test_a_range_that_is_not_known_is_refused(
    filled_home: Home, tmp_path: Path, start: datetime, until: datetime | None
) -> None:
    with (
        pytest.raises(WarehouseError, match="history is from 2026-02-25T06:00:00Z to"),
        replaying(filled_home, tmp_path, start, until),
    ):
        pass
