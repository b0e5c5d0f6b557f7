"""Webhooks end to end, with real files, a real receiver on loopback, and clocks set by tests."""

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from catalog.contract.constants import IMPACT_BANDS, WEBHOOK_API_VERSION, WEBHOOK_RETRY_AFTER_S
from catalog.sandbox.history import SandboxHistory
from catalog.sandbox.sandbox import Sandbox
from catalog.server.catalog_store import ChangeQuery, StoredVersion
from catalog.server.webhooks.sender import SenderOptions, list_reported_kinds
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.webhooks.feeds import CANARY_TITLE, EVENT, MINUTE, START, Service, change
from tests.server.webhooks.receiver import Received, Receiver, digest

pytestmark = pytest.mark.anyio

CANCELLED = change(2, status="cancelled", cancelled_at=START, version=2)
MAJOR = replace(EVENT, impact=8.0)
BAND_ONLY = replace(EVENT, impact=None, impact_band=IMPACT_BANDS[-1][1])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.outbox.close()


def events_sent(receiver: Receiver, path: str = "/hook") -> list[str]:
    return [json.loads(each.body)["data"]["id"] for each in receiver.received if each.path == path]


def test_a_version_is_reported_as_kinds() -> None:
    expected: list[tuple[StoredVersion, list[str]]] = [
        (change(1), ["created"]),
        (change(1, event=MAJOR), ["created", "high-impact"]),
        (change(1, event=MAJOR, is_first_major=False), ["created"]),
        (change(1, event=BAND_ONLY), ["created", "high-impact"]),
        (change(1, event=None), []),
        (change(1, status="withdrawn"), []),
        (CANCELLED, ["cancelled"]),
        (replace(CANCELLED, cancelled_at=None), []),
        (change(1, version=2, changed=("title", "coins", "categories")), []),
        (change(1, version=2, changed=("impact_band",)), ["updated"]),
        (change(1, version=2, changed=("impact",), event=MAJOR), ["updated", "high-impact"]),
        (change(1, version=2, kinds=("restored",)), ["updated"]),
    ]
    for version, kinds in expected:
        assert list(list_reported_kinds(version)) == [f"events.{kind}" for kind in kinds], version


async def test_a_delivery_has_the_complete_event(service: Service, receiver: Receiver) -> None:
    service.restart(states_created=True)
    endpoint = await service.subscribe(receiver.url)
    service.feed.versions = [replace(CANCELLED, previous=change(1))]
    service.clock.instant += timedelta(milliseconds=999)
    await service.pass_minutes(3)
    (request,) = receiver.received
    assert request.is_signed_with(endpoint.secret)
    assert request.headers["Content-Type"] == "application/json"
    body = json.loads(request.body)
    assert body.pop("id").startswith("evt_dlv_")
    event = body.pop("data")
    assert (event["title"], event["cancelledAt"]) == (CANARY_TITLE, "2026-05-01T12:00:00Z")
    assert body == {
        "type": "events.cancelled",
        "apiVersion": WEBHOOK_API_VERSION,
        **dict.fromkeys(("createdAt", "deliveredAt"), "2026-05-01T12:03:00Z"),
        "previous": {"status": "scheduled"},
    }


async def test_late_changes_and_versions_learned_together_are_sent_and_none_twice(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.feed.versions = [change(5)]
    for minutes in (6, -4, 4):
        await service.pass_minutes(minutes)
    late = change(6, known_from=START, version=2, changed=("date",))
    service.feed.versions += [late, replace(late, seq=7, version=3)]
    await service.pass_minutes(0)
    assert events_sent(receiver) == ["e5", "e6", "e6"]
    assert len({request.id for request in receiver.received}) == 3


async def test_after_the_history_was_built_anew_only_what_became_known_later_is_sent(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    await service.subscribe(receiver.url)
    service.feed.versions = [change(n) for n in (1, 2, 3)]
    await service.pass_minutes(3)
    service.feed.feed_id = "second"
    service.feed.versions = [change(n, seq=n + 10) for n in (1, 2, 7, 3, 4, 5, 6)]
    service.feed.versions.append(change(20, seq=18, known_from=START))
    await service.pass_minutes(6)
    service.feed.versions.append(change(21, seq=19, known_from=START))
    await service.pass_minutes(1)
    assert sorted(events_sent(receiver)) == ["e1", "e2", "e21", *(f"e{n}" for n in range(3, 8))]
    assert caplog.text.count("the history was built anew") == 1


async def test_in_order_a_delivery_waits_until_the_one_before_was_accepted(
    service: Service, receiver: Receiver
) -> None:
    service.restart(retry_after_s=(0.001,), in_order=True)
    for path in ("fails", "works"):
        await service.subscribe(f"{receiver.url}/{path}", signature="t,v1")
    failures = iter([*[503] * 20, *[200, 503] * 3])
    receiver.answer = lambda each: next(failures, 200) if each.path.endswith("fails") else 200
    service.feed.versions = [change(number) for number in (1, 2, 3, 4)]
    await service.pass_minutes(5)
    fails = [*["e1"] * 21, *["e2"] * 2, *["e3"] * 2, *["e4"] * 2]
    assert events_sent(receiver, "/hook/fails") == fails
    works = [request for request in receiver.received if request.path == "/hook/works"]
    for number, request in enumerate(works, start=1):
        at, body = START + number * MINUTE, json.loads(request.body)
        assert (body["data"]["id"], body["deliveredAt"]) == (f"e{number}", f"{at:%FT%TZ}")
        assert request.signature.startswith(f"t={at.timestamp():.0f},")


async def test_a_failure_is_retried_on_the_schedule(service: Service, receiver: Receiver) -> None:
    endpoint = await service.subscribe(receiver.url, signature="t,v1")
    service.feed.versions = [change(1)]
    statuses = iter((302, 404))
    receiver.answer = lambda _: next(statuses, 503)
    await service.pass_minutes(1)
    for attempts, wait_s in enumerate(WEBHOOK_RETRY_AFTER_S, start=1):
        service.wall.instant += timedelta(seconds=wait_s, microseconds=-1)
        service.restart()
        await service.pass_minutes(1)
        assert (len(receiver.received), service.sender.delivered_until) == (attempts, None)
        service.wall.instant += timedelta(microseconds=1)
        await service.sender.run_once()
    assert service.sender.delivered_until == service.clock.now()
    assert len({request.body for request in receiver.received}) == 1
    for number, request in enumerate(receiver.received, start=1):
        at = f"{(START + number * MINUTE).timestamp():.0f}"
        signed = digest(endpoint.secret, f"{at}.".encode() + request.body)
        assert request.signature == f"t={at},v1={signed}"
    (dead,) = service.outbox.dead()
    assert (dead.id, dead.attempts, dead.last_status) == (receiver.received[0].id, 10, 503)
    receiver.answer = lambda _: 204
    service.outbox.requeue(dead.id, now=service.wall())
    await service.sender.run_once()
    assert receiver.received[-1].body == dead.body
    assert service.outbox.dead() == service.outbox.pending() == ()


async def test_410_disables_the_endpoint(service: Service, receiver: Receiver) -> None:
    await service.subscribe(receiver.url)
    service.feed.versions = [change(n) for n in (1, 2, 3, 5)]
    statuses = iter((500, 500))
    receiver.answer = lambda _: next(statuses, 410)
    for minutes in (2, 1, 9):
        await service.pass_minutes(minutes)
    assert "410" in str(service.book.endpoints()[0].disabled_reason)
    assert (len(receiver.received), len(service.outbox.dead())) == (3, 3)
    assert (service.outbox.pending(), service.outbox.positions()) == ((), {})


async def test_a_removed_endpoint_gets_nothing_more(service: Service, receiver: Receiver) -> None:
    endpoint = await service.subscribe(receiver.url)
    await service.subscribe(f"{receiver.url}/other", "other")
    service.feed.versions = [change(n) for n in range(1, 40)]
    removed = iter([endpoint.id])

    def leave(request: Received) -> int:
        if request.path == "/hook" and (endpoint_id := next(removed, None)):
            service.book.remove(endpoint_id)
        return 200

    receiver.answer = leave
    await service.pass_minutes(30)
    sent = len(events_sent(receiver))
    assert sent <= SenderOptions().per_endpoint, "it is asked for before each attempt"
    service.restart()
    await service.pass_minutes(1)
    assert len(service.outbox.dead()) == 30 - sent
    assert {each.last_error for each in service.outbox.dead()} == {"the endpoint was removed"}
    assert len(events_sent(receiver, "/hook/other")) == 31


async def test_the_secret_is_not_logged(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint = await service.subscribe(receiver.url)
    service.feed.versions = [change(1)]
    receiver.answer = lambda _: 503
    await service.pass_minutes(1)
    assert "webhook failed" in caplog.text
    shown = repr(service.outbox.pending())
    shown += "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert not [canary for canary in (endpoint.secret, CANARY_TITLE) if canary in shown]


async def running(service: Service, during: Callable[[], object]) -> None:
    """Run the sender, call a function on a thread, and stop the sender."""
    task = asyncio.create_task(service.sender.run())
    try:
        await asyncio.to_thread(during)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_slow_endpoint_delays_no_other(service: Service, receiver: Receiver) -> None:
    released = threading.Event()
    slow, fast = "/hook/slow", "/hook/fast"
    receiver.answer = lambda each: 200 if each.path == fast or released.wait(HANGS_AFTER_S) else 500
    for path in (slow, fast):
        await service.subscribe(receiver.url.replace("/hook", path))
    service.feed.versions = [change(n) for n in range(1, 13)]

    def during() -> None:
        for minutes in (6, 12):
            service.clock.instant = START + minutes * MINUTE
            service.sender.wake()
            wait_for(lambda least=minutes: len(events_sent(receiver, fast)) == least)  # type: ignore[misc]
        wait_for(lambda: len(events_sent(receiver, slow)) == 4)
        # The outbox hears of a delivery after the receiver.
        wait_for(lambda: len(service.outbox.pending()) == 12)

    await running(service, during)
    released.set()
    assert [each.attempts for each in service.outbox.pending()] == [0] * 12
    service.restart()
    await service.sender.run_once()
    assert sorted({*events_sent(receiver, slow)}) == sorted(f"e{n}" for n in range(1, 13))
    assert service.outbox.pending() == ()


async def test_a_failed_sender_is_started_again(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    await service.subscribe(receiver.url)
    service.sleep = sleep
    service.restart()
    service.feed.versions, service.feed.fails_at_page = [change(1)], 0
    service.clock.instant += MINUTE
    await running(service, lambda: wait_for(lambda: receiver.received))
    assert len(pauses) == 1
    assert "the webhook sender failed" in caplog.text


NOW = datetime(2018, 3, 1, tzinfo=UTC)
SOON = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)


def test_with_faults_every_delivery_arrives_in_any_order(receiver: Receiver) -> None:
    faults = "push_shuffled,push_twice@0.2,push_unanswered@0.2"
    with Sandbox(now=NOW, push=SOON, faults=faults) as sandbox:
        sandbox.subscribe(receiver.url)
        until = sandbox.advance_by_deliveries(60)
        sandbox.wait_until_pushed(HANGS_AFTER_S)
    store = SandboxHistory(sandbox.seed, sandbox.pace).at(until)
    changes = store.changes(ChangeQuery(until=until, after=store.head(NOW)), limit=10**9).rows
    expected = Counter(
        (kind, each.event_id) for each in changes for kind in list_reported_kinds(each)
    )
    bodies = {request.id: request.body for request in receiver.received}
    assert {request.body for request in receiver.received} == set(bodies.values())
    decoded = [json.loads(body) for body in bodies.values()]
    assert Counter((body["type"], body["data"]["id"]) for body in decoded) == expected
    assert len(bodies) == expected.total() >= 60
    stated = [body["data"].get("cancelledAt", body["data"]["updatedAt"]) for body in decoded]
    assert stated != sorted(stated)
    times = Counter(request.id for request in receiver.received)
    assert sum(arrived > 1 for arrived in times.values()) > 5
