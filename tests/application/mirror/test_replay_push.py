"""Webhooks of a replay: the order of knowledge, a receiver that is killed, the same bytes."""

import json
import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from application.web.mirror.mirror import CONTROL_PATH
from catalog.contract.plans import ELITE
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions
from tests.application.mirror.replays import change_log, log_hash, read_changes, replaying
from tests.free_ports import free_port
from tests.hangs import wait_for
from tests.warehouse.landed_days import FIRST, ask, land
from tests.warehouse.normalise.catalog_bodies import json_event
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Pull, Scope

EVENTS = 50
START = FIRST + timedelta(minutes=1)
PUSHED_FROM = FIRST + timedelta(hours=1)
SOON = SenderOptions(retry_after_s=(0.05,), poll_s=0.02, in_order=True)
Sent = tuple[list[Any], dict[str, Any]]
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


class Receiver:
    """A receiver in its own process."""

    def __init__(self, port: int, file: Path) -> None:
        program = "tests.application.mirror.receiver_process"
        self._command = [sys.executable, "-m", program, f"{port}", f"{file}"]
        self._file = file

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def count(self) -> int:
        return self._file.read_bytes().count(b"\n") if self._file.exists() else 0

    def requests(self) -> list[Sent]:
        """Return head and body of each request that was recorded, in order."""
        lines = map(json.loads, self._file.read_text().splitlines())
        return [(head, json.loads(body)) for head, body in lines]


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


def without_repeats(requests: list[Sent]) -> list[Sent]:
    """Return the requests without those that were sent again, since no answer came."""
    first = {body["id"]: (head, body) for head, body in reversed(requests)}
    return [first[id_] for id_ in dict.fromkeys(body["id"] for _, body in requests)]


@pytest.mark.parametrize(
    ("changes", "kills"),
    [
        pytest.param(300, 4, id="some"),
        pytest.param(2_000, 10, id="many", marks=pytest.mark.long),
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
        with Receiver(port, tmp_path / run) as receiver:
            state = replay_to(home, state_dir, receiver, kills=times, expected=len(expected))
            requests = receiver.requests()
        log = change_log(home, START, datetime.fromisoformat(state["until"]))
        assert state["changes"] == dict(known=len(log), total=len(log), sha256=log_hash(log))
        assert len(requests) - len(without_repeats(requests)) <= times
        found.append(without_repeats(requests))
        assert [
            (body["type"], body["data"]["id"], body["data"]["description"]) for _, body in found[-1]
        ] == expected
    assert found[0] == found[1]
