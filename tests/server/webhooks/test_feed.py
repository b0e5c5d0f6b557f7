"""Each change of the feed is delivered to each endpoint, whatever fails, stops or is killed."""

import asyncio
import json
import multiprocessing
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from catalog.server.webhooks.delivery import AttemptOutcome, Poster
from tests.hangs import wait_for
from tests.server.webhooks.feeds import EVENT, MINUTE, START, Service, change
from tests.server.webhooks.receiver import Receiver

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


@example(in_order=False, steps=[("publish", ["new"] * 7)])
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
    [pytest.param(100, 1, id="some"), pytest.param(2_000, 10, id="many", marks=pytest.mark.long)],
)
def test_kills_of_a_sender_lose_nothing_and_keep_the_order(
    tmp_path: Path, receiver: Receiver, changes: int, kills: int
) -> None:
    asyncio.run(Service(tmp_path).subscribe(receiver.url))
    for number in range(1, kills + 2):
        least = changes * number // (kills + 1)
        process = multiprocessing.get_context("spawn").Process(
            target=_send, args=(tmp_path, changes)
        )
        process.start()
        try:
            wait_for(lambda least=least: len({each.id for each in receiver.received}) >= least)  # type: ignore[misc]
        finally:
            process.kill()
            process.join()
    received = [json.loads(each.body)["data"]["id"] for each in receiver.received]
    assert list(dict.fromkeys(received)) == [f"e{number}" for number in range(1, changes + 1)]
    assert len(received) - changes <= kills
