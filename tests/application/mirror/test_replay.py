"""The replay of a home: its clock and control path, its webhooks, and `db.replay`."""

import json
import shutil
import time
from collections import defaultdict
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import almanac
from almanac.core.errors import WarehouseError
from application.web.mirror.mirror import CONTROL_PATH
from application.web.mirror.replay import Replay
from catalog.contract.plans import ELITE
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from tests.application.mirror.filled_home import ENDS, NOW, STARTS, mirroring
from tests.application.mirror.replays import (
    CHANGES,
    change_log,
    log_hash,
    order,
    read_changes,
    replaying,
)
from tests.hangs import wait_for
from tests.history.stories.handmade import HandmadeHome, at, event
from tests.reading import ask, reading
from tests.server.webhooks.receiver import Receiver
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


WRONG_ORDERS: dict[str, dict[str, object]] = {
    "now must be YYYY-MM-DD or": {"now": "soon"},
    "an RFC 3339 instant in UTC": {"now": "2026-02-27T00:00:00"},
    "outside the replay": {"now": "2036-01-01T00:00:00Z"},
    "<= 10000000000.0 - at `$.advance_s`": {"advance_s": 1e300},
    ">= 1 - at `$.step`": {"step": 0},
    "$.step": {"step": 10**25},
    "> 0.0 - at `$.speed`": {"speed": -1, "advance_s": 60},
    "<= 1000000000.0 - at `$.speed`": {"speed": 1e308},
    "until": {"until": "2026-01-01"},
}


def test_a_wrong_order_changes_nothing(filled_home: Home, tmp_path: Path) -> None:
    with replaying(filled_home, tmp_path, SECOND_DAY) as (_, client):
        before = client.get(CONTROL_PATH).json()
        for reason, fields in WRONG_ORDERS.items():
            answer = client.put(CONTROL_PATH, json=fields)
            assert answer.status_code == 400
            assert reason in answer.json()["message"]
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


def test_a_range_that_is_not_known_is_refused(filled_home: Home) -> None:
    for start, until in (
        (STARTS - timedelta(seconds=1), None),
        (START, ENDS + timedelta(days=30)),
        (ENDS, START),
        (START, START),
    ):
        with pytest.raises(WarehouseError, match="history is from 2026-02-25T06:00:00Z to"):
            Replay(filled_home.warehouse, start, until)


SOON = SenderOptions(retry_after_s=(0.05,), poll_s=0.02, in_order=True)
MATERIAL = {
    *("date", "date_end", "date_type", "is_estimated", "impact", "impact_band", "description"),
    "source_url",
}


def list_reported(home: Home) -> list[tuple[str, str, str]]:
    """Return kind, event and title of all that a replay reports, in order, from plain rows."""
    rows = ask(
        home,
        "SELECT event_id, known_from, status, change_kinds, changed_fields, impact, title, version "
        "FROM event_versions ORDER BY known_from, event_id, version",
    )
    were_major: defaultdict[str, bool] = defaultdict(bool)
    found = []
    for event_id, known_from, status, kinds, changed, impact, title, version in rows:
        sent = []
        is_major = impact is not None and impact >= 7.5
        if status == "cancelled":
            sent.append("events.cancelled")
        elif status == "scheduled" and (
            version == 1 or "restored" in kinds or MATERIAL & set(changed)
        ):
            sent.append("events.created" if version == 1 else "events.updated")
            if is_major and not were_major[event_id]:
                sent.append("events.high-impact")
        were_major[event_id] |= is_major
        if known_from > STARTS:
            found += [(kind, event_id, title) for kind in sent]
    return found


def is_over(client: httpx.Client) -> bool:
    state = client.get(CONTROL_PATH).json()
    return bool(state["ended"] and state["delivered"])


def test_two_replays_send_the_same_bytes_in_order(filled_home: Home, tmp_path: Path) -> None:
    receiver, folder = Receiver(), ServiceDir(tmp_path)
    folder.key_book().create("bot", ELITE)
    folder.endpoint_book().add(receiver.url, account="bot", allow_private=True, signature="t,v1")
    expected, log = list_reported(filled_home), change_log(filled_home, STARTS, ENDS)
    assert {kind for kind, _, _ in expected} >= {"events.created", "events.cancelled"}
    found = []
    for _ in range(2):
        receiver.received.clear()
        fast = {"paused": False, "speed": 1e6, "push": SOON}
        with replaying(filled_home, tmp_path, STARTS, ENDS, **fast) as (_, client):  # type: ignore[arg-type]
            wait_for(partial(is_over, client))
            state = client.get(CONTROL_PATH).json()
            assert len(read_changes(client)) == len(log)
        assert state["changes"] == dict(known=len(log), total=len(log), sha256=log_hash(log))
        bodies = [json.loads(each.body) for each in receiver.received]
        shown = [(body["type"], body["data"]["id"], body["data"]["title"]) for body in bodies]
        assert shown == expected
        found.append([(each.signature, each.body) for each in receiver.received])
        reported = sum(kind != "events.high-impact" for kind, _, _ in expected)
        (counts,) = state["webhooks"].values()
        counted = dict(accepted=len(expected), unreported=len(log) - reported, waiting=0, dead=0)
        assert counts == counted
        assert counts["unreported"] > 0
    assert found[0] == found[1]
    receiver.answer = lambda _: 503
    with replaying(filled_home, tmp_path, STARTS, ENDS, push=SOON) as (_, client):

        def count(name: str) -> int:
            state = order(client)
            return sum(each[name] for each in state["webhooks"].values()) * (not state["delivered"])

        order(client, now=SECOND_DAY.isoformat())
        wait_for(lambda: count("waiting") > 0)
        assert count("accepted") == 0
    receiver.close()


FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def as_of(file: Path, ts: datetime) -> dict[str, tuple[Any, ...]]:
    """Return version, status, date and coins of each event by the macro of the warehouse."""
    with reading(file) as connection:
        rows = connection.execute(
            "SELECT event_id, version, status, date::TIMESTAMP, coins FROM events_as_of(?)", [ts]
        ).fetchall()
    return {event_id: tuple(found) for event_id, *found in rows}


def in_catalog(changes: almanac.Replay) -> dict[str, tuple[Any, ...]]:
    return {
        event_id: (
            *(known["version"], known["status"]),
            *(known["date"] and known["date"].replace(tzinfo=None), known["coins"]),
        )
        for event_id, known in changes.catalog.items()
    }


def replay(home: Path, *since_until: Any, **chosen: Any) -> almanac.Replay:
    with almanac.open(home) as db:
        return db.replay(*since_until, **chosen)


def test_the_catalog_equals_events_as_of_through_every_kind_of_change(filled_home: Home) -> None:
    whole = list(replay(filled_home.root, STARTS))
    assert {"cancelled", "withdrawn", "restored"} <= {kind for each in whole for kind in each.kinds}
    last_at = {change.known_from: number for number, change in enumerate(whole)}
    checked = [*last_at.values()][::3]
    changes = replay(filled_home.root, STARTS)
    assert in_catalog(changes) == as_of(filled_home.warehouse, STARTS)
    for number, change in enumerate(changes):
        if number in checked:
            assert in_catalog(changes) == as_of(filled_home.warehouse, change.known_from)
    assert changes.now == changes.until


def test_the_last_of_two_versions_of_the_same_time_stays_in_the_catalog(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    story.listed("02 06:00", event("a"), event("b"))
    story.export(
        "03 06:00", event("a", title="Second", updatedAt="2026-03-02T08:00:00Z"), event("b")
    )
    story.listed(
        "03 06:00",
        event("a", title="Third", updatedAt="2026-03-02T09:00:00Z"),
        event("b"),
        true="03 06:00",
    )
    story.merge()
    with replay(tmp_path, at("02 06:00")) as changes:
        found = [(each.event_id, each.version, each.event["title"]) for each in changes]
        assert found == [("a", 2, "Second"), ("a", 3, "Third")]
        assert changes.catalog["a"]["title"] == "Third"
        assert in_catalog(changes) == as_of(story.home.warehouse, at("03 06:00"))
    started_there = replay(tmp_path, at("03 06:00"))
    assert (list(started_there), started_there.catalog["a"]["title"]) == ([], "Third")


def test_each_version_comes_once_in_order_of_knowledge_and_hides_its_end(filled_home: Home) -> None:
    changes = list(replay(filled_home.root, STARTS))
    found = [(each.event_id, each.version, f"{each.known_from:{FORMAT}}") for each in changes]
    assert found == change_log(filled_home, STARTS, NOW)
    assert found
    assert not any({"known_to", "known_basis"} & change.event.keys() for change in changes)
    for change in changes:
        assert (change.previous is None) == (change.version == 1)
        if change.previous is not None:
            assert change.previous["version"] == change.version - 1


def test_kinds_and_coins_select_changes_but_not_the_catalog(filled_home: Home) -> None:
    whole = list(replay(filled_home.root, STARTS))
    kind = whole[0].kinds[0]
    coin = next(change.event["coins"][0] for change in whole if change.event["coins"])
    by_kind = replay(filled_home.root, STARTS, kinds=kind)
    assert [c.event_id for c in by_kind] == [c.event_id for c in whole if kind in c.kinds]
    assert by_kind.count == len(whole)
    with almanac.open(filled_home.root) as db:
        chosen = list(db.replay(STARTS, coins=f"slug:{coin}"))
    assert chosen
    assert len(chosen) < len(whole)
    for change in chosen:
        assert coin in (*change.event["coins"], *((change.previous or {}).get("coins") or ()))


def test_a_replaced_file_is_read_to_its_end(filled_home: Home, tmp_path: Path) -> None:
    file = Path(shutil.copy(filled_home.warehouse, tmp_path / "warehouse.duckdb"))
    whole = [change.event_id for change in replay(file, STARTS)]
    changes = replay(file, STARTS)
    found = [next(changes).event_id]
    other = Path(shutil.copy(filled_home.warehouse, tmp_path / "other.duckdb"))
    other.chmod(0o600)
    other.write_bytes(b"not a warehouse")
    other.replace(file)
    found += [change.event_id for change in changes]
    assert found == whole


def test_wrong_arguments_are_refused(filled_home: Home) -> None:
    later = STARTS + timedelta(hours=1)
    empty = replay(filled_home.root, STARTS, STARTS)
    assert (list(empty), empty.count, bool(empty.catalog)) == ([], 0, True)
    with pytest.raises(almanac.QueryRefused, match=f"first pull of events, at {STARTS:%Y-%m-%d}"):
        replay(filled_home.root, "2001-01-01")
    with pytest.raises(almanac.InvalidArgument, match="is before since"):
        replay(filled_home.root, later, STARTS)
    with pytest.raises(almanac.InvalidArgument, match="kinds"):
        replay(filled_home.root, STARTS, kinds="moved")
    with pytest.raises(almanac.InvalidArgument, match="since=None"):
        replay(filled_home.root, None)
    with pytest.raises(almanac.UnknownName):
        replay(filled_home.root, STARTS, coins="slug:no-such-coin")
