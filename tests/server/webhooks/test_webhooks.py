"""Webhooks end to end, with real files, a real receiver on loopback, and clocks set by tests."""

import asyncio
import json
import logging
import multiprocessing
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from msgspec import json as msgspec_json
from msgspec.structs import replace as replace_field

from catalog.contract.constants import (
    WEBHOOK_API_VERSION,
    WEBHOOK_KINDS,
    WEBHOOK_RETRY_AFTER_S,
    SignatureForm,
)
from catalog.contract.plans import PLANS, Plan
from catalog.contract.records import CancelledEvent, Delivery, Event
from catalog.server.accounts import Accounts, KeyBook
from catalog.server.store import CatalogChange, CatalogView, StoredEvent
from catalog.server.webhooks.delivery import Poster
from catalog.server.webhooks.endpoints import Endpoint, EndpointBook, Receivers
from catalog.server.webhooks.outbox import Outbox
from catalog.server.webhooks.sender import SenderOptions, WebhookSender
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.webhooks.receiver import Received, Receiver, digest

pytestmark = pytest.mark.anyio

CATALOG_START = datetime(2026, 5, 1, 12, tzinfo=UTC)
WALL_START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CANARY_TITLE = "canary-title"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SetClock:
    """A clock that stands at a set instant: `now` is the catalog's clock, a call the wall clock."""

    def __init__(self, instant: datetime) -> None:
        self.instant = instant

    def now(self) -> datetime:
        return self.instant

    def __call__(self) -> datetime:
        return self.instant

    def advance(self, span: timedelta) -> None:
        self.instant += span


class ListedStore:
    """A store that has only a list of changes."""

    def __init__(self, *changes: CatalogChange) -> None:
        self.listed = list(changes)

    def at(self, instant: datetime) -> CatalogView:
        raise AssertionError("webhooks do not use views")

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        return [change for change in self.listed if after < change.at <= until]


def stored_event(event_id: str) -> StoredEvent:
    return StoredEvent(
        id=event_id,
        slug=event_id,
        title=CANARY_TITLE,
        description=None,
        displayed_date="08 Oct",
        date=datetime(2026, 10, 8, tzinfo=UTC),
        date_end=None,
        date_type="date",
        is_estimated=False,
        categories=(),
        coins=(),
        impact=7.25,
        impact_summary=None,
        source_url=None,
        snapshot_url=None,
        last_verified_at=None,
        created_at=CATALOG_START,
        updated_at=CATALOG_START,
    )


def change(number: int, kind: str = "events.created", *, event: str | None = None) -> CatalogChange:
    """A change that happens `number` minutes after the start."""
    at = CATALOG_START + number * MINUTE
    return CatalogChange(
        at=at,
        kind=kind,  # type: ignore[arg-type]
        event=stored_event(event or f"e{number}"),
        cancelled_at=at if kind == "events.cancelled" else None,
    )


def render(change: CatalogChange, plan: Plan) -> Event:
    fields = {name: getattr(change.event, name) for name in Event.__struct_fields__}
    fields |= {"coins": (), "impact": change.event.impact if plan.webhooks else None}
    if change.cancelled_at is None:
        return Event(**fields)
    return CancelledEvent(**fields, cancelled_at=change.cancelled_at)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class Service:
    """A sender with its files, on clocks that stand still; `restart` makes a new sender on them."""

    def __init__(self, directory: Path, store: ListedStore) -> None:
        self.directory = directory
        self.store = store
        self.clock = SetClock(CATALOG_START)
        self.wall = SetClock(WALL_START)
        self.options = SenderOptions(poll_s=0.02)
        self.start()

    def start(self) -> None:
        self.accounts = KeyBook(self.directory / "keys.json", wall=self.wall)
        if not self.accounts.read().accounts:
            self.accounts.create("acme", PLANS["elite"])
            self.accounts.create("other", PLANS["enterprise"])
        self.book = self.open_book()
        self.outbox = Outbox(self.directory / "outbox.sqlite")
        self.sender = WebhookSender(
            self.store,
            self.clock,
            Receivers(self.book, self.accounts),
            self.outbox,
            render,
            self.wall,
            poster=Poster(timeout_s=HANGS_AFTER_S),
            options=self.options,
        )

    def open_book(self) -> EndpointBook:
        return EndpointBook(
            self.directory / "endpoints.json", accounts=self.accounts, wall=self.wall
        )

    def move(self, account: str, plan: str | None) -> None:
        """Put an account on another plan in the file, as its operator does; None removes it."""
        with self.accounts.file.editing() as edit:
            edit.value = Accounts(
                accounts=tuple(
                    replace_field(each, plan=plan) if each.name == account else each
                    for each in edit.value.accounts
                    if plan is not None or each.name != account
                )
            )

    def restart(self) -> None:
        self.outbox.close()
        self.start()

    def add(self, url: str, signature: SignatureForm = "hex") -> tuple[Endpoint, str]:
        return self.book.add(url, account="acme", allow_private=True, signature=signature)

    async def subscribe(self, url: str, signature: SignatureForm = "hex") -> tuple[Endpoint, str]:
        """Add an endpoint and let the sender read it, so that it receives changes from now on."""
        added = self.add(url, signature)
        await self.sender.run_once()
        return added

    async def pass_minutes(self, minutes: int) -> None:
        """Advance the catalog's clock, and send the changes."""
        self.clock.advance(minutes * MINUTE)
        await self.sender.run_once()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, ListedStore())
    yield service
    service.outbox.close()


async def test_each_kind_of_change_is_sent_at_once_with_its_complete_event(
    service: Service, receiver: Receiver
) -> None:
    _, secret = await service.subscribe(receiver.url)
    kinds = dict(enumerate(WEBHOOK_KINDS, start=1))
    service.store.listed = [change(n, kind, event="e") for n, kind in kinds.items()]
    for _ in kinds:
        await service.pass_minutes(1)
    for number, delivery in enumerate(receiver.received, start=1):
        assert delivery.is_signed_with(secret)
        body = json.loads(delivery.body)
        assert list(body) == ["id", "type", "apiVersion", "deliveredAt", "data"]
        assert body["id"].startswith("evt_dlv_")
        assert (body["type"], body["apiVersion"]) == (kinds[number], WEBHOOK_API_VERSION)
        assert body["deliveredAt"] == f"2026-05-01T12:0{number}:00Z"
        assert (body["data"]["title"], body["data"]["impact"]) == (CANARY_TITLE, 7.25)
        assert body["data"].get("cancelledAt") == ("2026-05-01T12:03:00Z" if number == 3 else None)
        assert msgspec_json.decode(delivery.body, type=Delivery).id == body["id"]
        assert delivery.headers["Content-Type"] == "application/json"
        assert delivery.headers["User-Agent"].startswith("almanac")
    assert [json.loads(delivery.body)["type"] for delivery in receiver.received] == list(
        WEBHOOK_KINDS
    )


async def test_a_change_that_was_learned_later_states_when(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    learned = replace(change(1), at=change(1).at + timedelta(microseconds=700), version=2)
    service.store.listed = [learned]
    await service.pass_minutes(2)
    assert json.loads(receiver.received[0].body)["createdAt"] == "2026-05-01T12:01:00Z"


async def test_versions_of_one_event_that_were_learned_together_are_all_sent(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [replace(change(1, event="e"), version=number) for number in (2, 3)]
    await service.pass_minutes(2)
    assert len(receiver.received) == 2


async def test_in_order_a_delivery_waits_until_the_one_before_was_accepted(
    service: Service, receiver: Receiver
) -> None:
    service.options = SenderOptions(retry_after_s=(0.001,), poll_s=0.02, in_order=True)
    service.restart()
    await service.subscribe(f"{receiver.url}/fails")
    await service.subscribe(f"{receiver.url}/works")
    failures = iter([*[503] * 20, *[200, 503] * 3])
    receiver.answer = lambda each: next(failures, 200) if each.path.endswith("fails") else 200
    service.store.listed = [change(number) for number in (1, 2, 3, 4)]
    await service.pass_minutes(5)
    works = [json.loads(each.body) for each in receiver.of("/hook/works")]
    fails = [json.loads(each.body) for each in receiver.of("/hook/fails")]
    expected = ["e1", "e2", "e3", "e4"]
    assert [body["data"]["id"] for body in works] == expected
    assert [body["data"]["id"] for body in fails] == [
        *(["e1"] * 21 + ["e2"] * 2 + ["e3"] * 2 + ["e4"] * 2)
    ]
    assert [body["deliveredAt"] for body in works] == [
        f"2026-05-01T12:0{number}:00Z" for number in (1, 2, 3, 4)
    ]
    assert service.outbox.dead() == ()


async def test_only_changes_after_the_endpoint_was_added_are_sent(
    service: Service, receiver: Receiver
) -> None:
    service.store.listed = [change(n) for n in (1, 2, 3)]
    await service.sender.run_once()
    await service.pass_minutes(2)
    await service.subscribe(receiver.url)
    await service.pass_minutes(5)
    assert [json.loads(delivery.body)["data"]["id"] for delivery in receiver.received] == ["e3"]


async def test_an_endpoint_added_by_the_catalogs_clock_while_nothing_ran_misses_nothing(
    service: Service, receiver: Receiver
) -> None:
    service.store.listed = [change(n) for n in (1, 2, 3)]
    await service.sender.run_once()
    service.restart()
    service.wall.instant = CATALOG_START + MINUTE
    service.add(receiver.url)
    await service.pass_minutes(5)
    sent = sorted(json.loads(delivery.body)["data"]["id"] for delivery in receiver.received)
    assert sent == ["e2", "e3"]


async def test_what_changed_while_no_server_ran_is_sent_after_a_restart(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(n) for n in (1, 2)]
    service.restart()
    await service.pass_minutes(5)
    service.restart()
    await service.pass_minutes(5)
    assert len(receiver.received) == 2


async def test_a_failure_is_retried_on_the_schedule_and_then_listed_as_a_dead_letter(
    service: Service, receiver: Receiver
) -> None:
    _, secret = await service.subscribe(receiver.url, "t,v1")
    service.store.listed = [change(1)]
    receiver.answer = lambda _: 503
    await service.pass_minutes(1)
    for attempts, wait_s in enumerate(WEBHOOK_RETRY_AFTER_S, start=1):
        service.wall.advance(timedelta(seconds=wait_s, microseconds=-1))
        service.restart()
        await service.pass_minutes(1)
        assert len(receiver.received) == attempts
        service.wall.advance(timedelta(microseconds=1))
        await service.sender.run_once()
        assert len(receiver.received) == attempts + 1
    service.wall.advance(timedelta(days=30))
    await service.pass_minutes(1)
    assert len(receiver.received) == 1 + len(WEBHOOK_RETRY_AFTER_S)
    assert len({delivery.body for delivery in receiver.received}) == 1
    times = [delivery.signature.split(",")[0] for delivery in receiver.received]
    assert len(set(times)) == len(times)
    for number, delivery in enumerate(receiver.received):
        at = str(int((CATALOG_START + (number + 1) * MINUTE).timestamp()))
        expected = digest(secret, at.encode() + b"." + delivery.body)
        assert delivery.signature == f"t={at},v1={expected}"
    (dead,) = service.outbox.dead()
    assert (dead.id, dead.attempts, dead.last_status) == (receiver.received[0].id, 10, 503)
    assert service.outbox.pending() == ()


async def test_a_requeued_dead_letter_is_sent_with_the_same_id_and_body(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    receiver.answer = lambda _: 500
    await service.pass_minutes(1)
    (delivery,) = service.outbox.pending()
    service.outbox.mark_dead(delivery.endpoint_id, error="test")
    receiver.answer = lambda _: 204
    service.outbox.requeue(delivery.id, now=service.wall())
    await service.sender.run_once()
    assert [delivery.body for delivery in receiver.received] == [delivery.body] * 2
    assert service.outbox.dead() == service.outbox.pending() == ()


@pytest.mark.parametrize("status", [302, 304, 400, 404, 500])
async def test_anything_but_2xx_is_a_failure(
    service: Service, receiver: Receiver, status: int
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    receiver.answer = lambda _: status
    await service.pass_minutes(1)
    (delivery,) = service.outbox.pending()
    assert (delivery.attempts, delivery.last_status) == (1, status)


async def test_a_refused_connection_is_a_failure(service: Service) -> None:
    with socket.socket() as bound:  # Bound but not listening, so nothing else takes the port.
        bound.bind(("127.0.0.1", 0))
        await service.subscribe(f"http://127.0.0.1:{bound.getsockname()[1]}/")
        service.store.listed = [change(1)]
        await service.pass_minutes(1)
    (delivery,) = service.outbox.pending()
    assert (delivery.attempts, delivery.last_status) == (1, None)
    assert "Connect" in str(delivery.last_error)


async def test_410_disables_the_endpoint_and_marks_its_pending_deliveries_dead(
    service: Service, receiver: Receiver
) -> None:
    endpoint, _ = await service.subscribe(receiver.url)
    service.store.listed = [change(n) for n in (1, 2, 3)]
    receiver.answer = lambda _: 500
    await service.pass_minutes(2)
    receiver.answer = lambda _: 410
    await service.pass_minutes(1)
    disabled = service.open_book().get(endpoint.id)
    assert not disabled.enabled
    assert "410" in str(disabled.disabled_reason)
    assert service.outbox.pending() == ()
    assert len(service.outbox.dead()) == 3
    service.store.listed.append(change(5))
    service.wall.advance(timedelta(days=9))
    await service.pass_minutes(9)
    assert len(receiver.received) == 3


async def test_pending_deliveries_of_a_removed_endpoint_are_marked_dead(
    service: Service, receiver: Receiver
) -> None:
    endpoint, _ = await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    receiver.answer = lambda _: 500
    await service.pass_minutes(1)
    service.book.remove(endpoint.id)
    await service.sender.run_once()
    assert [delivery.last_error for delivery in service.outbox.dead()] == [
        "the endpoint was removed"
    ]


async def test_while_a_secret_rotates_both_sign(service: Service, receiver: Receiver) -> None:
    endpoint, old = await service.subscribe(receiver.url)
    service.store.listed = [change(1), change(2)]
    new = service.book.rotate(endpoint.id, overlap_hours=1)
    await service.pass_minutes(1)
    service.wall.advance(timedelta(hours=1))
    await service.pass_minutes(1)
    during, after = receiver.received
    assert during.is_signed_with(new, old)
    assert after.is_signed_with(new)


async def test_an_attempt_is_signed_in_the_form_that_the_endpoint_has_then(
    service: Service, receiver: Receiver
) -> None:
    endpoint, secret = await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    receiver.answer = lambda _: 503
    await service.pass_minutes(1)
    service.open_book().sign_as(endpoint.id, "t,v1")
    service.wall.advance(timedelta(seconds=WEBHOOK_RETRY_AFTER_S[0]))
    await service.pass_minutes(1)
    plain, stamped = receiver.received
    assert plain.is_signed_with(secret)
    assert stamped.signature.startswith(f"t={int(service.clock.now().timestamp())},v1=")
    assert plain.body == stamped.body


async def test_the_time_of_a_delivery_is_that_of_its_first_attempt_in_whole_seconds(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    service.clock.advance(timedelta(milliseconds=999))
    receiver.answer = lambda _: 503
    await service.pass_minutes(2)
    service.wall.advance(timedelta(days=1))
    await service.pass_minutes(9)
    first, second = receiver.received
    assert json.loads(first.body)["deliveredAt"] == "2026-05-01T12:02:00Z"
    assert second.body == first.body


async def test_a_clock_set_back_moves_the_watermark_back_and_sends_nothing_twice(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(1), change(3)]
    await service.pass_minutes(4)
    await service.pass_minutes(-4)
    assert service.outbox.watermark() == CATALOG_START
    service.store.listed = [change(1), change(2), change(3)]
    await service.pass_minutes(4)
    assert [json.loads(delivery.body)["data"]["id"] for delivery in receiver.received[2:]] == ["e2"]


async def test_each_endpoint_has_its_own_delivery_ids(service: Service, receiver: Receiver) -> None:
    service.add(receiver.url + "/a")
    await service.subscribe(receiver.url + "/b")
    service.store.listed = [change(1)]
    await service.pass_minutes(1)
    assert len({delivery.id for delivery in receiver.received}) == len(receiver.received) == 2


async def test_many_simultaneous_changes_are_all_sent_once(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [replace(change(1), event=stored_event(f"e{n}")) for n in range(60)]
    await service.pass_minutes(1)
    assert len({delivery.id for delivery in receiver.received}) == len(receiver.received) == 60


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until a condition is true; what it waits for is in other threads."""
    await asyncio.to_thread(wait_for, holds)


async def test_a_slow_endpoint_does_not_delay_another(service: Service, receiver: Receiver) -> None:
    released = threading.Event()
    slow, fast = "/hook/slow", "/hook/fast"

    def answer(delivery: Received) -> int:
        if delivery.path == slow:
            released.wait(HANGS_AFTER_S)
        return 200

    receiver.answer = answer
    service.add(receiver.url + "/slow")
    await service.subscribe(receiver.url + "/fast")
    service.store.listed = [change(n) for n in range(1, 13)]
    running = asyncio.create_task(service.sender.run())
    try:
        service.clock.advance(6 * MINUTE)
        service.sender.wake()
        await eventually(lambda: len(receiver.of(fast)) == 6)
        service.clock.advance(6 * MINUTE)
        await eventually(lambda: len(receiver.of(fast)) == 12)
        await eventually(lambda: len(receiver.of(slow)) == 4)
        released.set()
        await eventually(lambda: len(receiver.of(slow)) == 12)
    finally:
        released.set()
        running.cancel()
        await asyncio.wait([running])


async def test_an_attempt_interrupted_by_a_stop_is_not_counted(
    service: Service, receiver: Receiver
) -> None:
    released = threading.Event()
    receiver.answer = lambda _: 200 if released.wait(HANGS_AFTER_S) else 500
    await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    service.clock.advance(MINUTE)
    running = asyncio.create_task(service.sender.run())
    await eventually(lambda: len(receiver.received) == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    released.set()
    assert [delivery.attempts for delivery in service.outbox.pending()] == [0]
    service.restart()
    await service.sender.run_once()
    assert receiver.received[0].body == receiver.received[1].body
    assert service.outbox.pending() == ()


async def test_an_endpoint_added_while_the_sender_runs_is_served(
    service: Service, receiver: Receiver
) -> None:
    service.store.listed = [change(n) for n in (1, 2)]
    running = asyncio.create_task(service.sender.run())
    try:
        await eventually(lambda: service.outbox.watermark() is not None)
        service.open_book().add(receiver.url, account="other", allow_private=True)
        service.clock.advance(MINUTE)
        await eventually(lambda: len(receiver.received) == 1)
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize(("plan", "why"), [("pro", "plan pro"), (None, "no account 'acme'")])
async def test_an_account_that_leaves_elite_gets_nothing_more_and_what_waits_is_dead(
    service: Service, receiver: Receiver, plan: str | None, why: str
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(n) for n in (1, 2, 3, 4)]
    receiver.answer = lambda _: 503
    await service.pass_minutes(1)
    assert len(receiver.received) == len(service.outbox.pending()) == 1
    receiver.answer = lambda _: 200
    service.move("acme", plan)
    service.wall.advance(timedelta(seconds=WEBHOOK_RETRY_AFTER_S[0]))
    await service.pass_minutes(1)
    assert len(receiver.received) == 1, "neither the retry nor the new change"
    assert service.outbox.pending() == ()
    (dead,) = service.outbox.dead()
    assert dead.id == receiver.received[0].id
    assert why in (dead.last_error or "")
    # A server that starts then sends nothing either.
    service.restart()
    await service.pass_minutes(1)
    assert (len(receiver.received), service.outbox.pending()) == (1, ())


async def test_an_account_that_is_on_elite_again_gets_what_changes_from_then_on(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(n) for n in (1, 2, 3)]
    await service.pass_minutes(1)
    service.move("acme", "free")
    await service.pass_minutes(1)
    service.move("acme", "enterprise")
    await service.pass_minutes(1)
    sent = [json.loads(delivery.body)["data"]["id"] for delivery in receiver.received]
    assert sent == ["e1", "e3"]


async def test_an_account_is_asked_for_between_two_deliveries_of_one_round(
    service: Service, receiver: Receiver
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(n) for n in range(1, 31)]

    def leave(_: Received) -> int:
        service.move("acme", "standard")
        return 200

    receiver.answer = leave
    await service.pass_minutes(60)
    assert len(receiver.received) <= SenderOptions().per_endpoint
    assert len(service.outbox.dead()) == 30 - len(receiver.received)


async def test_another_account_is_served_as_before(service: Service, receiver: Receiver) -> None:
    await service.subscribe(receiver.url)
    service.book.add(f"{receiver.url}/other", account="other", allow_private=True)
    await service.sender.run_once()
    service.move("acme", "pro")
    service.store.listed = [change(1)]
    await service.pass_minutes(1)
    assert [request.path for request in receiver.received] == ["/hook/other"]


async def test_the_known_accounts_stay_in_use_while_the_key_book_is_damaged(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    (service.directory / "keys.json").write_text("{")
    await service.pass_minutes(1)
    assert len(receiver.received) == 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


async def test_the_known_endpoints_stay_in_use_while_their_file_is_damaged(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    await service.subscribe(receiver.url)
    service.store.listed = [change(1)]
    (service.directory / "endpoints.json").write_text("{")
    await service.pass_minutes(1)
    assert len(receiver.received) == 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


async def test_neither_secrets_nor_bodies_are_logged(
    service: Service, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint, old = await service.subscribe(receiver.url)
    new = service.book.rotate(endpoint.id, overlap_hours=1)
    service.store.listed = [change(n) for n in (1, 2, 3)]
    for status in (200, 500, 410):
        receiver.answer = lambda _, status=status: status  # type: ignore[misc]
        await service.pass_minutes(1)
    assert len(receiver.received) == 3
    assert "webhook failed" in caplog.text
    for record in caplog.records:
        shown = f"{record.getMessage()} {record.__dict__}"
        for canary in (old, new, CANARY_TITLE):
            assert canary not in shown
    assert old not in repr(vars(service.sender)) + repr(service.outbox.dead())


def _send_for_ever(directory: Path, changes: list[CatalogChange]) -> None:
    """The process that is killed."""
    service = Service(directory, ListedStore(*changes))
    service.clock.advance(60 * MINUTE)
    asyncio.run(service.sender.run())


async def test_a_sender_killed_during_a_delivery_loses_nothing(
    service: Service, receiver: Receiver
) -> None:
    _, secret = await service.subscribe(receiver.url)
    service.store.listed = [change(n) for n in range(1, 21)]
    killed = threading.Event()
    numbers = count(1)
    receiver.answer = lambda _: 200 if next(numbers) <= 4 or killed.wait(HANGS_AFTER_S) else 500
    process = multiprocessing.get_context("spawn").Process(
        target=_send_for_ever, args=(service.directory, service.store.listed)
    )
    process.start()
    try:
        await eventually(lambda: len(receiver.received) == 8)
    finally:
        process.kill()
        process.join()
        killed.set()
    assert process.exitcode == -signal.SIGKILL
    assert len(service.outbox.pending()) == 16

    service.restart()
    await service.pass_minutes(60)
    times_received = Counter(delivery.id for delivery in receiver.received)
    assert sorted(times_received.values()) == [1] * 16 + [2] * 4
    assert len({delivery.body for delivery in receiver.received}) == 20
    assert service.outbox.pending() == service.outbox.dead() == ()
    for delivery in receiver.received:
        assert delivery.is_signed_with(secret)
