"""Deliveries while the receiver is killed: what was acknowledged is stored, and applied once."""

import json
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from catalog.server.webhooks.sender import SenderOptions
from resources.inbox.deliveries import land_deliveries, waiting_deliveries
from tests.pipeline.receiver.durability.recorded_posts import RecordingPoster
from tests.pipeline.receiver.durability.truth import answers, differences, rows_of
from tests.pipeline.receiver.programs import SECRET, ReceiveProgram, set_service_clock
from warehouse.clock import utc_now
from warehouse.history.merge import merge
from warehouse.home import Home

NOW = datetime(2018, 3, 1, tzinfo=UTC)
FAULTS = "push_shuffled,push_twice@0.2,push_unanswered@0.2"
PATIENT = SenderOptions(retry_after_s=(0.3,) * 5_000, poll_s=0.05, per_endpoint=16)
FRESHNESS = timedelta(minutes=1)
"""What the service shows is so old; push is not."""


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> RecordingPoster:
    sender = RecordingPoster(random.Random(1))
    monkeypatch.setattr("catalog.sandbox.sandbox.Poster", lambda **_: sender)
    return sender


@pytest.fixture
def sandbox(sender: RecordingPoster) -> Iterator[Sandbox]:
    with Sandbox(now=NOW, push=PATIENT, faults=FAULTS) as sandbox:
        yield sandbox


@pytest.fixture
def program(sandbox: Sandbox, tmp_path: Path) -> Iterator[ReceiveProgram]:
    program = ReceiveProgram(tmp_path / "home", base_url=sandbox.base_url)
    yield program
    program.close()


@pytest.mark.parametrize(
    ("changes", "portion", "kills"),
    [
        (300, 60, 5),
        pytest.param(10_000, 10_000, 100, marks=[pytest.mark.long, pytest.mark.timeout(3_600)]),
    ],
)
def test_what_was_acknowledged_is_stored_and_applied_once_while_the_receiver_is_killed(
    changes: int,
    portion: int,
    kills: int,
    sandbox: Sandbox,
    program: ReceiveProgram,
    sender: RecordingPoster,
) -> None:
    """A kill counts if it cut a request: connected before it, and without an answer."""
    program.start()
    sandbox.subscribe(program.url, secret=SECRET)
    chance, each = random.Random(changes), changes // kills
    due = hits = tries = 0
    while hits < kills:
        # Armed before anything is due: else all of it may be delivered before the kill.
        sender.arm(program.process.pid, after=chance.randrange(each // 2))
        if due < changes or due - len(sender.acknowledged()) < 2 * each:
            more = each if due else portion
            until = sandbox.advance_by_deliveries(more)
            set_service_clock(program.home, until)
            due += more
        killed_at = sender.wait_until_killed()
        program.wait()
        tries += 1
        hits += any(post.was_cut(killed_at) for post in sender.posts)
        assert sender.acknowledged() <= stored_bodies(program.home).keys()
        program.start()
    sandbox.wait_until_pushed(600)
    with sandbox.service_dir.outbox() as outbox:
        assert outbox.dead() == ()
    assert program.end() == (130, "", "")

    posts = sender.posts
    pushed = {post.delivery_id: post.body for post in posts}
    assert len(pushed) >= changes
    assert sender.acknowledged() == pushed.keys()
    assert stored_bodies(program.home) == pushed

    bodies = drained(program.home)
    assert sorted(bodies) == sorted(pushed.values()), "each id is landed once"
    merge(program.home)
    assert_equal_to_the_service(sandbox, program.home, bodies, until)
    times = Counter(post.delivery_id for post in posts if post.acknowledged)
    again = sum(count > 1 for count in times.values())
    assert again > changes // 10
    sys.stdout.write(
        f"{len(pushed)} deliveries, {len(posts)} attempts, {again} acknowledged more than once; "
        f"{hits} of {tries} kills cut requests\n"
    )


def stored_bodies(home: Home) -> dict[str, bytes]:
    """Return the deliveries of the inbox by id, each of which it has once."""
    path = home.state / "inbox" / "deliveries.sqlite"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = connection.execute("SELECT delivery_id, body FROM deliveries").fetchall()
    connection.close()
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def drained(home: Home) -> list[bytes]:
    """Land what the inbox holds; return all bodies in landing."""
    land_deliveries(home, utc_now)
    assert waiting_deliveries(home).count == 0
    return [
        body
        for batch_id in home.landing.batch_ids()
        for _, body in home.landing.pages(home.landing.manifest(batch_id))
    ]


def assert_equal_to_the_service(
    sandbox: Sandbox, home: Home, bodies: list[bytes], until: datetime
) -> None:
    ids = {json.loads(body)["data"]["id"] for body in bodies}
    key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    found = answers(sandbox.base_url, key, ids, until + FRESHNESS)
    rows = rows_of(home.warehouse)
    assert differences(rows, found) == []
    assert rows.keys() == ids
    statuses = Counter(answer.status_code for answer in found.values())
    sys.stdout.write(f"{len(ids)} events; the service answers {dict(statuses)}\n")
    assert statuses[200] > len(ids) // 2
    assert statuses[410] > 0
