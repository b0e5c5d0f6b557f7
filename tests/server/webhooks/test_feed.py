"""Each change of the feed is delivered to each endpoint, whatever fails, stops or is killed."""

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from catalog.server.webhooks.delivery import AttemptOutcome, Poster
from tests.application.mirror.receiver_process import serve
from tests.free_ports import free_port
from tests.hangs import wait_for
from tests.server.webhooks.feeds import EVENT, MINUTE, START, Service, change

Sent = tuple[str, str, str]
"""URL, event and id of a delivery."""


class DrawnPoster(Poster):
    """Answers as it is told, and then accepts."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[str] = []
        self.accepted: list[Sent] = []
        self.unread: list[Sent] = []

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        decoded = json.loads(body)
        sent = (url, decoded["data"]["id"], decoded["id"])
        outcome = self.outcomes.pop() if self.outcomes else "accepts"
        if outcome == "accepts":
            self.accepted.append(sent)
            return AttemptOutcome(200)
        if outcome == "crashes after":
            self.unread.append(sent)
        if outcome != "fails":
            raise OSError("cut")
        return AttemptOutcome(503)

    def forget(self, waiting: set[str]) -> None:
        """Take the deliveries that wait as not accepted: a crash came before that was written."""
        self.unread += [sent for sent in self.accepted if sent[2] in waiting]
        self.accepted = [sent for sent in self.accepted if sent[2] not in waiting]


ROUNDS = st.lists(
    st.sampled_from(["accepts", "fails", "crashes before", "crashes after", "crashes reading"]),
    max_size=8,
)
STEPS: st.SearchStrategy[tuple[str, list[str]]] = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from(["new", "late", "quiet"]), max_size=9)),
    st.tuples(st.just("round"), ROUNDS),
    st.tuples(st.just("subscribe"), st.just([])),
)


@settings(deadline=None, max_examples=30)
@given(in_order=st.booleans(), steps=st.lists(STEPS, min_size=3, max_size=10))
def test_each_change_is_accepted_exactly_once_by_each_endpoint(
    in_order: bool, steps: list[tuple[str, list[str]]]
) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(_deliver(Path(folder), in_order, [("subscribe", []), *steps]))


async def _deliver(folder: Path, in_order: bool, steps: list[tuple[str, list[str]]]) -> None:
    service = Service(folder)
    service.clock.instant += 1_000 * MINUTE
    service.poster = poster = DrawnPoster()
    service.sleep = lambda _: asyncio.sleep(0)
    service.restart(retry_after_s=(1,) * 1_000, in_order=in_order)
    expected: dict[str, list[str]] = {}
    for action, details in [*steps, ("round", []), ("round", [])]:
        service.wall.instant += MINUTE
        if action == "publish":
            for form in details:
                seq = len(service.feed.versions) + 1
                version = change(seq, event=replace(EVENT, id=f"e{seq}"))
                if form == "late":
                    version = replace(version, known_from=START)
                if form == "quiet":
                    version = replace(version, status="withdrawn")
                else:
                    for events in expected.values():
                        events.append(f"e{seq}")
                service.feed.versions.append(version)
        elif action == "subscribe":
            url = f"http://127.0.0.1/{len(expected)}"
            await service.subscribe(url)
            expected[url] = []
        else:
            poster.outcomes = [each for each in details if each != "crashes reading"]
            service.feed.fails_at_page = 1 if "crashes reading" in details else None
            with suppress(ExceptionGroup):
                await service.pass_minutes(1)
            service.restart()
            poster.forget({delivery.id for delivery in service.outbox.pending()})
            poster.outcomes, service.feed.fails_at_page = [], None
    await service.sender.run_once()
    assert service.sender.delivered_until == service.clock.now()
    for url, events in expected.items():
        accepted = [event for to, event, _ in poster.accepted if to == url]
        assert sorted(accepted) == sorted(events)
        assert accepted == events or not in_order
    assert set(poster.unread) <= set(poster.accepted), "a repeated delivery has the same id"
    service.outbox.close()


def _send(folder: Path, changes: int) -> None:
    service = Service(folder)
    service.restart(retry_after_s=(0.02,), in_order=True)
    service.feed.versions = [change(number) for number in range(1, changes + 1)]
    service.clock.instant += changes * MINUTE
    asyncio.run(service.sender.run())


@pytest.mark.parametrize(
    ("changes", "kills"),
    [pytest.param(200, 2, id="some"), pytest.param(2_000, 10, id="many", marks=pytest.mark.long)],
)
def test_kills_of_sender_and_receiver_lose_nothing_and_keep_the_order(
    tmp_path: Path, changes: int, kills: int
) -> None:
    port, record = free_port(), tmp_path / "received"
    asyncio.run(Service(tmp_path).subscribe(f"http://127.0.0.1:{port}/hook"))
    programs: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        (serve, (port, str(record))),
        (_send, (tmp_path, changes)),
    ]
    spawning = multiprocessing.get_context("spawn")

    def events() -> list[str]:
        lines = record.read_text().rpartition("\n")[0].splitlines() if record.exists() else []
        return [json.loads(json.loads(line)[1])["data"]["id"] for line in lines]

    def is_past(least: int) -> bool:
        return len(set(events())) >= least

    for number in range(1, kills + 2):
        running = [spawning.Process(target=target, args=args) for target, args in programs]
        try:
            for process in running:
                process.start()
            wait_for(partial(is_past, changes * number // (kills + 1)))
        finally:
            for process in running:
                process.kill()
                process.join()
    received = events()
    assert list(dict.fromkeys(received)) == [f"e{number}" for number in range(1, changes + 1)]
    assert len(received) - changes <= kills
