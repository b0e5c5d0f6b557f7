"""Landing and merging under SIGKILL: each delivery is landed once, and none is forgotten."""

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from resources.inbox.deliveries import land_deliveries, waiting_deliveries
from resources.inbox.inbox_file import Arrival, InboxWriter
from resources.inbox.progress import ProgressFile, read_progress
from tests.crashes.after_kills import intact_batches, landed_files
from tests.crashes.conftest import ROOT
from tests.pipeline.receiver.durability.killed_lander import LANDED_AT, LandDeath, LandOrder
from tests.pipeline.receiver.programs import ReceiveProgram, set_service_clock
from tests.pipeline.receiver.served import Served
from tests.resources.inbox.deliveries import START, Clock, delivery
from warehouse import queries
from warehouse.history.merge import merge
from warehouse.history.verify import verify
from warehouse.home import Home

AT_ONCE = 4
"""Deliveries in a range, so that there are several."""
DAYS = 3
A_DAY = 4
LONG = [pytest.mark.long, pytest.mark.timeout(3_600)]
Lander = Callable[..., LandDeath]


@pytest.fixture(scope="module")
def lander() -> Iterator[Lander]:
    """Return a function that lands the deliveries of a home in a process, killed at a step."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.receiver.durability.killed_lander"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def carry_out(home: Home, **given: object) -> LandDeath:
        assert process.stdin is not None
        assert process.stdout is not None
        order = LandOrder(root=str(home.root), at_once=AT_ONCE, **given)  # type: ignore[arg-type]
        process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        process.stdin.flush()
        return msgspec.json.decode(process.stdout.readline(), type=LandDeath)

    yield carry_out
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with deliveries of some days that are not landed, and a dead letter to replay."""
    home, clock = Home(tmp_path_factory.mktemp("received") / "home"), Clock()
    home.claim("sandbox:1")
    with InboxWriter.open(home, clock.now) as writer:
        for day in range(DAYS):
            numbers = range(day * A_DAY, (day + 1) * A_DAY)
            writer.store([Arrival(delivery(number, at=clock.now())) for number in numbers])
            clock.advance(days=1)
        # The same id with another body is a dead letter.
        writer.store([Arrival(delivery(0, title="Other"))])
    with ProgressFile.open(home) as file:
        file.settle([DAYS * A_DAY + 1], "replayed")
    return home


def copied(home: Home, target: Path) -> Home:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(home.root, target)
    return Home(target)


def bodies_by_seq(home: Home) -> dict[int, bytes]:
    path = home.state / "inbox" / "deliveries.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as inbox:
        return dict(inbox.execute("SELECT seq, body FROM deliveries").fetchall())


def landed(home: Home) -> Counter[bytes]:
    """Return how often each body is in landing; all batches are complete."""
    return Counter(
        body
        for batch_id in intact_batches(home.landing)
        for _, body in home.landing.pages(home.landing.manifest(batch_id))
    )


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=LONG)])
def test_a_lander_killed_at_every_step_lands_each_delivery_once(
    every: int, lander: Lander, received: Home, tmp_path: Path
) -> None:
    whole = copied(received, tmp_path / "whole")
    steps = lander(whole).steps
    assert steps > 30
    assert landed(whole) == Counter(bodies_by_seq(whole).values())
    progress = []
    for step in range(1, steps + 1, every):
        home = copied(received, tmp_path / "home")
        assert lander(home, step=step).killed
        so_far, known = landed(home), bodies_by_seq(home)
        landed_to = read_progress(home).landed_to
        assert {known[seq] for seq in range(1, landed_to + 1)} <= set(so_far) | {known[13]}
        assert set(so_far.values()) <= {1}
        progress.append(landed_to)
        assert not lander(home).killed
        assert landed_files(home) == landed_files(whole)
        assert waiting_deliveries(home).count == 0
    assert progress == sorted(progress)
    assert len(set(progress)) > 3


@pytest.mark.parametrize("every", [100, pytest.param(1, marks=LONG)])
def test_a_merge_of_deliveries_killed_at_every_step_ends_the_same_as_without_kills(
    every: int, lander: Lander, received: Home, tmp_path: Path
) -> None:
    whole = copied(received, tmp_path / "whole")
    steps = lander(whole, merging=True).steps
    for step in range(1, steps + 1, every):
        home = copied(received, tmp_path / "home")
        assert lander(home, step=step, merging=True).killed
        assert not lander(home, merging=True).killed
        assert landed_files(home) == landed_files(whole)
        assert events(home) == events(whole)
    assert failed_checks(home) == {}


def test_deliveries_that_arrive_after_a_kill_are_landed_after_the_interrupted_range(
    lander: Lander, received: Home, tmp_path: Path
) -> None:
    for step in range(5, lander(copied(received, tmp_path / "whole")).steps, 40):
        home = copied(received, tmp_path / "home")
        assert lander(home, step=step).killed
        with InboxWriter.open(home, lambda: LANDED_AT) as writer:
            writer.store([Arrival(delivery(100, at=START))])
        assert not lander(home).killed
        assert landed(home) == Counter(bodies_by_seq(home).values())


def events(home: Home) -> list[tuple[object, ...]]:
    with queries.connected(home.warehouse) as connection:
        return connection.execute("SELECT * FROM event_versions ORDER BY ALL").fetchall()


def failed_checks(home: Home) -> dict[str, int]:
    return {check.check: check.wrong for check in verify(home) if not check.holds}


@pytest.mark.parametrize("kills", [1, pytest.param(40, marks=LONG)])
def test_a_receiver_that_merges_itself_and_is_killed_leaves_a_whole_home(
    kills: int, tmp_path: Path
) -> None:
    program = ReceiveProgram(tmp_path / "home", "--merge")
    set_service_clock(program.home, START)
    client, chance = Served(program.home, Clock()), random.Random(kills)
    client.port = program.port
    sent = 0
    try:
        for _ in range(kills):
            program.start()
            for _ in range(30):
                assert client.post(delivery(sent)).status == 204
                sent += 1
            time.sleep(chance.uniform(0, 0.4))
            program.kill()
    finally:
        program.close()
    land_deliveries(program.home, lambda: LANDED_AT)
    assert landed(program.home) == Counter(delivery(number) for number in range(sent))
    merge(program.home)
    assert failed_checks(program.home) == {}
    with queries.connected(program.home.warehouse) as connection:
        rows = connection.execute("SELECT event_id, title FROM events").fetchall()
    assert sorted(rows) == sorted((f"evt_{number}", f"Event {number}") for number in range(sent))
