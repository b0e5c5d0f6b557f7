"""Push by the real server: what the sandbox sends, to whom, and in which order."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import httpx
import pytest
from msgspec.structs import replace

from catalog.contract.constants import IMPACT_MAJOR
from catalog.sandbox.sandbox import Sandbox
from catalog.sandbox.world.world import World
from catalog.sandbox.world_store import SandboxStore
from catalog.server.accounts import Accounts, ServiceDirError
from catalog.server.store import CatalogChange
from catalog.server.webhooks.outbox import OutboxDelivery
from catalog.server.webhooks.sender import SenderOptions
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.server.webhooks.receiver import Receiver

NOW = datetime(2018, 3, 1, tzinfo=UTC)
SOON = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(now=NOW, push=SOON) as sandbox:
        yield sandbox


def move(sandbox: Sandbox, account: str, plan: str | None) -> None:
    """Put an account on another plan in the file, as its operator does; None removes it."""
    with sandbox.service_dir.key_book().file.editing() as edit:
        edit.value = Accounts(
            accounts=tuple(
                replace(each, plan=plan) if each.name == account and plan else each
                for each in edit.value.accounts
                if plan is not None or each.name != account
            )
        )


def dead(sandbox: Sandbox) -> tuple[OutboxDelivery, ...]:
    with sandbox.service_dir.outbox() as outbox:
        return outbox.dead()


@pytest.mark.parametrize("plan", ["free", "standard", "pro"])
def test_an_account_below_elite_is_refused_and_gets_push_once_it_is_on_elite(
    sandbox: Sandbox, receiver: Receiver, plan: str
) -> None:
    sandbox.new_key(plan, account="acme")
    with pytest.raises(ServiceDirError, match=plan):
        sandbox.subscribe(receiver.url, account="acme")
    sandbox.advance_by_deliveries(1)
    move(sandbox, "acme", "elite")
    secret = sandbox.subscribe(receiver.url, account="acme")
    sandbox.advance_by_deliveries(2)
    sandbox.wait_until_pushed(15)
    assert len(receiver.received) >= 2
    assert all(delivery.is_signed_with(secret) for delivery in receiver.received)


@pytest.mark.parametrize(("plan", "why"), [("pro", "on the plan pro"), (None, "no account 'acme'")])
def test_what_waits_when_an_account_leaves_elite_is_sent_only_when_it_is_requeued_later(
    sandbox: Sandbox, receiver: Receiver, plan: str | None, why: str
) -> None:
    receiver.answer = lambda _: 503
    sandbox.subscribe(receiver.url, account="acme")
    sandbox.advance_by_deliveries(1)
    wait_for(lambda: len(receiver.received) >= 2)
    move(sandbox, "acme", plan)
    sandbox.wait_until_pushed(15)
    waiting = dead(sandbox)
    assert {delivery.id for delivery in receiver.received} == {each.id for each in waiting}
    assert all(why in (each.last_error or "") for each in waiting)
    receiver.answer = lambda _: 204
    receiver.received.clear()

    sandbox.advance_by_deliveries(3)
    sandbox.wait_until_pushed(15)
    assert receiver.received == [], "nothing is sent to an account without push"

    if plan is None:
        sandbox.new_key("elite", account="acme")
    move(sandbox, "acme", "enterprise")
    sandbox.advance_by_deliveries(2)
    sandbox.wait_until_pushed(15)
    later = {delivery.id for delivery in receiver.received}
    assert len(later) >= 2
    assert dead(sandbox) == waiting, "neither sent by itself nor forgotten"

    with sandbox.service_dir.outbox() as outbox:
        for each in waiting:
            outbox.requeue(each.id, now=datetime.now(UTC))
    sandbox.wait_until_pushed(15)
    assert dead(sandbox) == ()
    sent = {delivery.id: delivery.body for delivery in receiver.received}
    assert sent.keys() == later | {each.id for each in waiting}
    assert all(sent[each.id] == each.body for each in waiting)


def test_an_endpoint_that_is_registered_again_keeps_its_secret_unless_another_is_given(
    sandbox: Sandbox, receiver: Receiver
) -> None:
    first = sandbox.subscribe(receiver.url)
    assert sandbox.subscribe(receiver.url, signature="t,v1") == first
    own = "a secret of 24 characters".replace(" ", "-")
    assert sandbox.subscribe(receiver.url, secret=own) == own
    (endpoint,) = sandbox.service_dir.endpoint_book().endpoints()
    assert endpoint.signing_secrets(datetime.now(UTC)) == (own,)
    assert endpoint.signature == "hex"
    for wrong in ("", "too short", "one,and-another-with-a-comma", "with a space of " * 2):
        with pytest.raises(ServiceDirError, match="a signing secret is"):
            sandbox.subscribe(receiver.url, secret=wrong)
    sandbox.advance_by_deliveries(1)
    sandbox.wait_until_pushed(15)
    assert all(delivery.is_signed_with(own) for delivery in receiver.received)


def test_with_faults_every_delivery_arrives_in_any_order_and_more_than_once(
    receiver: Receiver,
) -> None:
    faults = "push_shuffled,push_twice@0.2,push_unanswered@0.2"
    with Sandbox(now=NOW, push=SOON, faults=faults) as sandbox:
        sandbox.subscribe(receiver.url)
        until = sandbox.advance_by_deliveries(120)
        sandbox.wait_until_pushed(30)
        changes = SandboxStore(sandbox.truth()).changes(NOW, until)
        assert dead(sandbox) == ()
    bodies = {delivery.id: delivery.body for delivery in receiver.received}
    assert {delivery.body for delivery in receiver.received} == set(bodies.values())
    assert len(bodies) == len(changes) >= 120
    decoded = [json.loads(body) for body in bodies.values()]
    assert Counter((body["type"], body["data"]["id"]) for body in decoded) == Counter(
        (change.kind, change.event.id) for change in changes
    )
    stated = [body["data"].get("cancelledAt", body["data"]["updatedAt"]) for body in decoded]
    assert stated != sorted(stated)
    times = Counter(delivery.id for delivery in receiver.received)
    assert sum(arrived > 1 for arrived in times.values()) > 20


def test_faults_of_push_leave_requests_alone_and_faults_of_requests_leave_push_alone(
    receiver: Receiver,
) -> None:
    with Sandbox(now=NOW, push=SOON, faults="storm*1,push_twice*1") as sandbox:
        headers = {"x-api-key": sandbox.keys["elite"], "Sandbox-Faults": "push_unanswered"}
        statuses = [
            httpx.get(
                f"{sandbox.base_url}/v2/usage", headers=headers, timeout=HANGS_AFTER_S
            ).status_code
            for _ in "12"
        ]
        assert statuses == [429, 200]
        sandbox.subscribe(receiver.url)
        sandbox.advance_by_deliveries(1)
        sandbox.wait_until_pushed(15)
        assert sandbox.faults.on() == []
    assert len(receiver.received) == len({delivery.id for delivery in receiver.received}) + 1


@pytest.fixture(scope="module")
def reported() -> tuple[World, list[CatalogChange]]:
    """What the sandbox reports from the beginning of its catalog."""
    world = World(1)
    return world, list(SandboxStore(world).changes(NOW - timedelta(days=4_000), NOW))


def test_an_event_is_reported_once_in_its_life_as_of_high_impact(
    reported: tuple[World, list[CatalogChange]],
) -> None:
    world, changes = reported
    first: dict[str, datetime] = {}
    for change in changes:
        for version in world.history(change.event.id, NOW):
            if (version.event.impact or 0) >= IMPACT_MAJOR:
                first.setdefault(change.event.id, version.known_from)
    sent = [change for change in changes if change.kind == "events.high-impact"]
    assert len(sent) > 100
    assert {change.event.id: change.at for change in sent} == first
    assert len(sent) == len(first)


def test_a_high_impact_follows_the_creation_or_update_of_the_same_change(
    reported: tuple[World, list[CatalogChange]],
) -> None:
    _, changes = reported
    pairs = [
        (before, change)
        for before, change in pairwise(changes)
        if change.kind == "events.high-impact"
    ]
    assert {before.kind for before, _ in pairs} == {"events.created", "events.updated"}
    for before, change in pairs:
        assert (before.at, before.event) == (change.at, change.event)


def test_a_withdrawal_is_not_reported_and_a_restored_event_is_newer_than_it(
    reported: tuple[World, list[CatalogChange]],
) -> None:
    world, changes = reported
    restored = 0
    for change in changes:
        content_at = change.cancelled_at or change.event.updated_at
        assert content_at == change.at, "what a receiver takes as the time of the content"
        *earlier, version = world.history(change.event.id, change.at)
        assert version.status != "withdrawn"
        assert all(known.known_from < content_at for known in earlier)
        restored += "restored" in version.kinds
    assert restored > 20
