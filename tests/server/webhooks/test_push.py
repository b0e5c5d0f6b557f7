"""Push by the sandbox: what it sends, to whom, and in which order."""

import json
from collections import Counter
from datetime import UTC, datetime

import pytest

from catalog.sandbox.history import SandboxHistory
from catalog.sandbox.sandbox import Sandbox
from catalog.server.catalog_store import ChangeQuery
from catalog.server.errors import ServerError
from catalog.server.webhooks.sender import SenderOptions, reported_kinds
from tests.hangs import HANGS_AFTER_S
from tests.server.webhooks.receiver import Receiver

NOW = datetime(2018, 3, 1, tzinfo=UTC)
SOON = SenderOptions(retry_after_s=(0.05,) * 200, poll_s=0.02)


def test_an_endpoint_that_is_registered_again_keeps_its_secret_unless_another_is_given(
    receiver: Receiver,
) -> None:
    with Sandbox(now=NOW, push=SOON) as sandbox:
        sandbox.new_key("pro", account="acme")
        with pytest.raises(ServerError, match="plan pro"):
            sandbox.subscribe(receiver.url, account="acme")
        first = sandbox.subscribe(receiver.url)
        assert sandbox.subscribe(receiver.url, signature="t,v1") == first
        own = "a-secret-of-24-characters"
        assert sandbox.subscribe(receiver.url, secret=own) == own
        for wrong in ("", "too short", "one,and-another-with-a-comma", "with a space of " * 2):
            with pytest.raises(ServerError, match="a signing secret is"):
                sandbox.subscribe(receiver.url, secret=wrong)
        sandbox.advance_by_deliveries(2)
        sandbox.wait_until_pushed(HANGS_AFTER_S)
        assert len(receiver.received) >= 2
        assert all(request.is_signed_with(own) for request in receiver.received)


def test_with_faults_every_delivery_arrives_in_any_order_and_more_than_once(
    receiver: Receiver,
) -> None:
    faults = "push_shuffled,push_twice@0.2,push_unanswered@0.2"
    with Sandbox(now=NOW, push=SOON, faults=faults) as sandbox:
        sandbox.subscribe(receiver.url)
        until = sandbox.advance_by_deliveries(120)
        sandbox.wait_until_pushed(HANGS_AFTER_S)
    store = SandboxHistory(sandbox.seed, sandbox.pace).at(until)
    changes = store.changes(ChangeQuery(until=until, after=store.head(NOW)), limit=10**9).rows
    expected = Counter((kind, each.event_id) for each in changes for kind in reported_kinds(each))
    bodies = {request.id: request.body for request in receiver.received}
    assert {request.body for request in receiver.received} == set(bodies.values())
    decoded = [json.loads(body) for body in bodies.values()]
    assert Counter((body["type"], body["data"]["id"]) for body in decoded) == expected
    assert len(bodies) == expected.total() >= 120
    stated = [body["data"].get("cancelledAt", body["data"]["updatedAt"]) for body in decoded]
    assert stated != sorted(stated)
    times = Counter(request.id for request in receiver.received)
    assert sum(arrived > 1 for arrived in times.values()) > 20
