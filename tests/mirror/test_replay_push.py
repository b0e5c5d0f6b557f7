"""Webhooks of a replay: the order of knowledge, a receiver that is killed, the same bytes."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.contract.plans import ELITE
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from pipeline.mirror.replay_server import CONTROL_PATH
from tests.free_ports import free_port
from tests.hangs import wait_for
from tests.mirror.replays import change_log, log_hash, order, read_changes, replaying
from tests.warehouse.landed_days import FIRST, ask, land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Pull, Scope

EVENTS = 50
START = FIRST + timedelta(minutes=1)
PUSHED_FROM = FIRST + timedelta(hours=1)
SOON = SenderOptions(retry_after_s=(0.05,), poll_s=0.02, in_order=True)
MATERIAL = {
    *("date", "date_end", "date_type", "is_estimated", "impact", "impact_band", "description"),
    "source_url",
}


def make_home(root: Path, changes: int) -> Home:
    """Return a home that learned of that many changes, one each second, after its first pull."""
    home = Home(root)
    rows = [
        {**json_event(impact=5.0), "id": f"event-{number}", "description": "first"}
        for number in range(EVENTS)
    ]
    land(home, 0, body=json.dumps({"data": rows, "meta": {}}).encode())
    bodies = []
    for number in range(changes):
        at = PUSHED_FROM + timedelta(seconds=number, milliseconds=number % 7)
        row = {**rows[number * 7 % EVENTS], "updatedAt": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        row["description"] = f"change {number}"
        if number % 11 == 0:
            row["impact"] = 8.5
        kind = "event.updated"
        if number % 43 == 0:
            kind, row["cancelledAt"] = "event.cancelled", row["updatedAt"]
        sent = {"type": kind, "createdAt": row["updatedAt"], "data": row}
        bodies.append((json.dumps(sent).encode(), at))
    home.landing.land(
        Pull(
            feed="deliveries",
            scope=Scope(),
            plan="enterprise",
            source="s",
            observed_at=at,
            content_at=at,
            landed_at=at,
            requests=0,
        ),
        bodies,
    )
    merge(home)
    return home


def reported(home: Home) -> list[tuple[str, str, str]]:
    """Return kind, event and content of all that a replay reports, in order, from plain rows."""
    rows = ask(
        home,
        "SELECT event_id, known_from, status, change_kinds, changed_fields, impact, description, "
        "version FROM event_versions ORDER BY known_from, event_id, version",
    )
    were_major: defaultdict[str, bool] = defaultdict(bool)
    found = []
    for event_id, known_from, status, kinds, changed, impact, description, version in rows:
        sent = []
        if status == "cancelled":
            sent.append("events.cancelled")
        elif version == 1 or "restored" in kinds or MATERIAL & set(changed):
            sent.append("events.created" if version == 1 else "events.updated")
            if impact >= 7.5 and not were_major[event_id]:
                sent.append("events.high-impact")
        were_major[event_id] |= impact >= 7.5
        if known_from > START:
            found += [(kind, event_id, description) for kind in sent]
    return found


def add_endpoint(state_dir: Path, port: int) -> None:
    folder = ServiceDir(state_dir)
    folder.key_book().create("bot", ELITE)
    folder.endpoint_book().add(
        f"http://127.0.0.1:{port}/hook", account="bot", allow_private=True, signature="t,v1"
    )


@contextmanager
def receiving(port: int, file: Path) -> Iterator["Receiver"]:
    receiver = Receiver(port, file)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.kill()


class Receiver:
    """A receiver in its own process."""

    def __init__(self, port: int, file: Path) -> None:
        self._port = port
        self._file = file

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mirror.receiver_process", str(self._port), self._file]
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def count(self) -> int:
        return self._file.read_bytes().count(b"\n") if self._file.exists() else 0

    def requests(self) -> list[tuple[list[Any], dict[str, Any]]]:
        """Return head and body of each request that was recorded, in order."""
        lines = self._file.read_text().splitlines()
        return [(head, json.loads(body)) for head, body in map(json.loads, lines)]


def replay_to(
    home: Home, state_dir: Path, receiver: Receiver, *, kills: int, expected: int
) -> dict[str, Any]:
    """Replay all, kill the receiver as often, and return the state at the end."""
    with replaying(home, state_dir, START, paused=False, speed=1e6, push=SOON) as (_, client):
        for number in range(1, kills + 1):
            least = expected * number // (kills + 1)
            wait_for(lambda least=least: receiver.count() >= least)
            receiver.kill()
            receiver.start()

        def final_state() -> dict[str, Any] | None:
            state = client.get(CONTROL_PATH).json()
            return dict(state) if state["ended"] and state["delivered"] else None

        state = wait_for(final_state)
        assert len(read_changes(client)) == state["changes"]["known"]
        return state


def without_repeats(
    requests: list[tuple[list[Any], dict[str, Any]]],
) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return the requests without those that were sent again, since no answer came."""
    first = {body["id"]: (head, body) for head, body in reversed(requests)}
    return [first[id_] for id_ in dict.fromkeys(body["id"] for _, body in requests)]


@pytest.mark.parametrize(
    ("changes", "kills"),
    [
        pytest.param(300, 4, id="some"),
        pytest.param(10_000, 20, id="many", marks=pytest.mark.long),
    ],
)
def test_a_killed_receiver_loses_nothing_and_two_replays_send_the_same_bytes(
    tmp_path: Path, changes: int, kills: int
) -> None:
    home = make_home(tmp_path / "home", changes)
    expected = reported(home)
    assert len(expected) >= changes
    state_dir, port = tmp_path / "mirror", free_port()
    add_endpoint(state_dir, port)
    found = []
    for run, times in (("first", kills), ("second", 0)):
        with receiving(port, tmp_path / run) as receiver:
            state = replay_to(home, state_dir, receiver, kills=times, expected=len(expected))
            requests = receiver.requests()
        log = change_log(home, START, datetime.fromisoformat(state["until"]))
        assert state["changes"] == {
            "known": len(log),
            "total": len(log),
            "sha256": log_hash(log),
        }
        assert len(requests) - len(without_repeats(requests)) <= times
        found.append(without_repeats(requests))
        assert [
            (body["type"], body["data"]["id"], body["data"]["description"]) for _, body in found[-1]
        ] == expected
    assert found[0] == found[1]


def test_a_delivery_and_its_signature_have_the_time_of_the_change(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", 5)
    state_dir, port = tmp_path / "mirror", free_port()
    add_endpoint(state_dir, port)
    with receiving(port, tmp_path / "requests") as receiver:
        replay_to(home, state_dir, receiver, kills=0, expected=5)
        requests = receiver.requests()
    times = sorted(
        {at[:19] for *_, at in change_log(home, START, PUSHED_FROM + timedelta(hours=1))}
    )
    assert sorted({body["deliveredAt"][:19] for _, body in requests}) == times
    for head, body in requests:
        signature = next(text for _, text in head[1:] if text.startswith("t="))
        delivered = datetime.fromisoformat(body["deliveredAt"])
        assert signature.startswith(f"t={delivered.timestamp():.0f},")


def test_webhooks_follow_the_clock(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", 20)
    state_dir, port = tmp_path / "mirror", free_port()
    add_endpoint(state_dir, port)
    with (
        receiving(port, tmp_path / "requests") as receiver,
        replaying(home, state_dir, START) as (_, client),
    ):
        for now in (PUSHED_FROM, PUSHED_FROM + timedelta(seconds=9, milliseconds=500)):
            order(client, now=now.isoformat())
            wait_for(lambda: client.get(CONTROL_PATH).json()["delivered"])
            sent = [datetime.fromisoformat(body["deliveredAt"]) for _, body in receiver.requests()]
            assert sent == sorted(sent)
            assert max(sent) == now.replace(microsecond=0)
