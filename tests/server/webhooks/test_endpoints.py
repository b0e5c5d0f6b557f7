"""The book of endpoints, its commands, and the outbox."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from catalog.contract.plans import PLANS
from catalog.server.accounts import KeyBook, ServiceDirError
from catalog.server.webhooks.delivery import TargetRefused
from catalog.server.webhooks.endpoints import EndpointBook
from catalog.server.webhooks.outbox import APPLICATION_ID, VERSION, Outbox, OutboxDelivery
from catalog.server.webhooks.sender import batches
from pipeline.cli.accounts import endpoints_app

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
URL = "https://hooks.example/in"


class Wall:
    def __init__(self) -> None:
        self.instant = START

    def __call__(self) -> datetime:
        return self.instant

    def advance(self, **span: float) -> None:
        self.instant += timedelta(**span)


def accounts(folder: Path) -> KeyBook:
    """Return a key book with an account of each plan, `acme` on Elite and `other` on Enterprise."""
    folder.mkdir(parents=True, exist_ok=True)
    book = KeyBook(folder / "keys.json", wall=lambda: START)
    if not book.read().accounts:
        named = {"acme": "elite", "other": "enterprise", **{plan: plan for plan in PLANS}}
        for name, plan in named.items():
            book.create(name, PLANS[plan])
    return book


def reopened_book(path: Path) -> EndpointBook:
    return EndpointBook(path, accounts=accounts(path.parent), wall=lambda: START)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "service" / "endpoints.json"


@pytest.fixture
def book(path: Path, wall: Wall) -> EndpointBook:
    numbers = count(1)
    return EndpointBook(
        path,
        accounts=accounts(path.parent),
        wall=wall,
        token=lambda size: f"canary{next(numbers)}of{size}",
    )


def test_an_endpoint_is_kept_in_a_file_that_only_its_owner_reads(
    book: EndpointBook, path: Path
) -> None:
    endpoint, secret = book.add(URL, account="acme")
    assert path.stat().st_mode & 0o777 == 0o600
    reopened = reopened_book(path).get(endpoint.id)
    assert reopened == endpoint
    assert reopened.signing_secrets(START) == (secret,) == ("whsec_canary1of32",)
    assert reopened.created_at == START


def test_secrets_are_random_unless_injected(path: Path) -> None:
    book = reopened_book(path)
    secrets = {book.add(URL, account="acme")[1] for _ in range(3)}
    assert len(secrets) == 3
    assert all(len(secret) == len("whsec_") + 64 for secret in secrets)


@pytest.mark.parametrize("account", ["free", "standard", "pro"])
def test_an_account_on_a_plan_without_push_gets_no_endpoint(
    book: EndpointBook, path: Path, account: str
) -> None:
    expected = f"on the plan {account}, which has no push; plans with push: elite, enterprise"
    with pytest.raises(ServiceDirError, match=expected):
        book.add(URL, account=account)
    assert not path.exists()


@pytest.mark.parametrize("account", ["nobody", "", "ACME"])
def test_an_account_that_is_not_in_the_key_book_gets_no_endpoint(
    book: EndpointBook, path: Path, account: str
) -> None:
    with pytest.raises(ServiceDirError, match=r"no account .* in the key book"):
        book.add(URL, account=account)
    assert not path.exists()


def test_a_private_address_is_refused_unless_the_endpoint_allows_it(book: EndpointBook) -> None:
    with pytest.raises(TargetRefused):
        book.add("http://127.0.0.1:9/", account="acme")
    book.add("http://127.0.0.1:9/", account="acme", allow_private=True)


def test_a_running_reader_sees_what_another_process_wrote(
    book: EndpointBook, path: Path, wall: Wall
) -> None:
    reader = reopened_book(path)
    assert reader.endpoints() == ()
    first, _ = book.add(URL, account="acme")
    assert reader.endpoints() == (first,)
    second, _ = book.add(URL, account="other")
    assert reader.endpoints() == (first, second)
    book.remove(first.id)
    assert reader.endpoints() == (second,)


def test_an_unchanged_file_is_not_read_again(book: EndpointBook) -> None:
    book.add(URL, account="acme")
    assert book.endpoints() is book.endpoints()


def test_writers_at_the_same_time_lose_nothing(path: Path) -> None:
    accounts(path.parent)  # Else each of the threads would make them.

    def add(_: int) -> str:
        return reopened_book(path).add(URL, account="acme")[0].id

    with ThreadPoolExecutor(8) as pool:
        added = set(pool.map(add, range(24)))
    assert {endpoint.id for endpoint in reopened_book(path).endpoints()} == added


def test_the_old_secret_signs_during_the_overlap_only(book: EndpointBook, wall: Wall) -> None:
    endpoint, first = book.add(URL, account="acme")
    second = book.rotate(endpoint.id, overlap_hours=2)
    assert book.get(endpoint.id).signing_secrets(START) == (second, first)
    wall.advance(hours=1)
    third = book.rotate(endpoint.id, overlap_hours=2)
    assert book.get(endpoint.id).signing_secrets(wall()) == (third, second, first)
    wall.advance(hours=1)
    assert book.get(endpoint.id).signing_secrets(wall()) == (third, second)
    wall.advance(hours=1)
    assert book.get(endpoint.id).signing_secrets(wall()) == (third,)
    fourth = book.rotate(endpoint.id, overlap_hours=0)
    assert [secret.value for secret in book.get(endpoint.id).secrets] == [fourth]
    with pytest.raises(ServiceDirError, match="overlap"):
        book.rotate(endpoint.id, overlap_hours=-1)


def test_disabling_keeps_the_first_reason_and_enabling_clears_it(
    book: EndpointBook, wall: Wall
) -> None:
    endpoint, _ = book.add(URL, account="acme")
    book.disable(endpoint.id, reason="410")
    wall.advance(hours=1)
    book.disable(endpoint.id, reason="by hand")
    disabled = book.get(endpoint.id)
    assert (disabled.enabled, disabled.disabled_at, disabled.disabled_reason) == (
        *(False, START),
        "410",
    )
    book.enable(endpoint.id)
    assert book.get(endpoint.id) == endpoint


def test_an_unknown_endpoint_is_named(book: EndpointBook) -> None:
    for refused in (book.remove, book.rotate, book.enable, book.get):
        with pytest.raises(ServiceDirError, match="ep_none"):
            refused("ep_none")


@pytest.mark.parametrize(
    "change",
    [
        ('"format": 1', '"format": 2'),
        ('"signature": "hex"', '"signature": "base64"'),
        ("2026-05-01T12:00:00Z", "2026-05-01T12:00:00"),
        ('"expires_at": null', '"expires_at": "2026-05-02T12:00:00Z"'),
        ("{", ""),
    ],
)
def test_a_file_that_is_not_a_book_is_an_error_and_stays(
    book: EndpointBook, path: Path, change: tuple[str, str]
) -> None:
    book.add(URL, account="acme")
    broken = path.read_text().replace(*change)
    path.write_text(broken)
    with pytest.raises(ServiceDirError) as caught:
        book.endpoints()
    with pytest.raises(ServiceDirError):
        book.add(URL, account="acme")
    assert path.read_text() == broken
    assert "canary1of32" not in str(caught.value)


def test_a_plan_that_an_older_file_has_beside_the_account_does_not_count(
    book: EndpointBook, path: Path
) -> None:
    endpoint, _ = book.add(URL, account="acme")
    path.write_text(path.read_text().replace('"account": "acme"', '"account": "acme", "plan": "x"'))
    assert book.endpoints() == (endpoint,)


def test_an_endpoint_of_a_file_without_forms_of_signature_is_signed_to_as_before(
    book: EndpointBook, path: Path
) -> None:
    endpoint, _ = book.add(URL, account="acme")
    assert endpoint.signature == "hex"
    older = path.read_text().replace('"signature": "hex",', "")
    assert older != path.read_text()
    path.write_text(older)
    assert book.get(endpoint.id).signature == "t,v1"
    book.sign_as(endpoint.id, "hex")
    assert book.get(endpoint.id) == endpoint


def test_no_repr_shows_a_secret(book: EndpointBook) -> None:
    endpoint, secret = book.add(URL, account="acme")
    assert secret == "whsec_canary1of32"
    page = StringIO()
    Console(file=page, width=500).print(endpoint, endpoint.secrets, book)
    for shown in (repr(endpoint), str(endpoint.secrets), repr(book), page.getvalue()):
        assert "canary1of32" not in shown


def delivery(number: int, **fields: object) -> OutboxDelivery:
    values = {
        "endpoint_id": "ep_1",
        "kind": "events.created",
        "body": b"{}",
        "created_at": START,
        "next_attempt_at": START,
    }
    return OutboxDelivery(**{"id": f"dlv_{number}", **values, **fields})  # type: ignore[arg-type]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "outbox.sqlite") as outbox:
        yield outbox


def enqueue(box: Outbox, *deliveries: OutboxDelivery, watermark: datetime = START) -> None:
    box.enqueue(deliveries, watermark=watermark, subscriptions={"ep_1": START})


def test_a_reopened_outbox_has_its_deliveries_watermark_and_subscriptions(
    box: Outbox, tmp_path: Path
) -> None:
    later = START + timedelta(microseconds=1)
    enqueue(box, delivery(1), delivery(2), watermark=later)
    box.mark_failed("dlv_2", status=503, error=None, retry_at=later)
    box.close()
    assert (tmp_path / "outbox.sqlite").stat().st_mode & 0o777 == 0o600
    with Outbox(tmp_path / "outbox.sqlite") as reopened:
        assert reopened.watermark() == later
        assert reopened.subscriptions() == {"ep_1": START}
        assert reopened.pending() == (
            delivery(1, next_attempt_at=START),
            delivery(2, next_attempt_at=later, attempts=1, last_status=503),
        )
        assert reopened.due("ep_1", now=START, limit=9) == (delivery(1, next_attempt_at=START),)
        assert reopened.due("ep_2", now=later, limit=9) == ()


def test_the_watermark_and_the_deliveries_are_written_together_or_not_at_all(box: Outbox) -> None:
    def failing() -> Iterator[OutboxDelivery]:
        yield delivery(1)
        raise RuntimeError("cut")

    with pytest.raises(RuntimeError):
        box.enqueue(failing(), watermark=START, subscriptions={"ep_1": START})
    assert (box.pending(), box.watermark(), box.subscriptions()) == ((), None, {})


def test_what_was_delivered_is_not_enqueued_again(box: Outbox) -> None:
    enqueue(box, delivery(1))
    box.mark_delivered("dlv_1", status=204)
    enqueue(box, delivery(1, body=b"other"))
    assert (box.pending(), box.dead()) == ((), ())


def test_an_answer_that_arrives_after_the_delivery_was_marked_dead_counts(box: Outbox) -> None:
    enqueue(box, delivery(1))
    box.mark_dead("ep_1", error="removed")
    box.mark_failed("dlv_1", status=500, error=None, retry_at=START)
    assert [delivery.last_error for delivery in box.dead()] == ["removed"]
    box.mark_delivered("dlv_1", status=200)
    assert box.dead() == ()


def test_only_a_dead_letter_is_requeued(box: Outbox) -> None:
    enqueue(box, delivery(1))
    with pytest.raises(ServiceDirError):
        box.requeue("dlv_1", now=START)
    box.mark_failed("dlv_1", status=500, error=None, retry_at=None)
    later = START + timedelta(hours=1)
    box.requeue("dlv_1", now=later)
    assert box.pending() == (delivery(1, next_attempt_at=later, last_status=500),)


@pytest.mark.parametrize("kind", ["text", "foreign", "newer"])
def test_a_file_that_is_not_an_outbox_is_an_error_and_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "outbox.sqlite"
    if kind == "text":
        path.write_bytes(b"not a database, and longer than the header of one " * 20)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE other (a)")
            if kind == "newer":
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.close()
    before = path.read_bytes()
    with pytest.raises(ServiceDirError, match="move it away"):
        Outbox(path)
    assert path.read_bytes() == before


def test_a_batch_never_ends_between_changes_of_one_instant() -> None:
    changes = [SimpleNamespace(at=number // 80) for number in range(260)]
    parts = list(batches(changes))  # type: ignore[arg-type]
    assert [len(part) for part in parts] == [160, 100]
    assert [change for part in parts for change in part] == changes


class Commands:
    """The commands as a user enters them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, *words: str, exits: int = 0) -> str:
        result = CliRunner().invoke(endpoints_app, [*words, "--dir", str(self._directory)])
        assert result.exit_code == exits, result.output
        return result.output


@pytest.fixture
def almanac(tmp_path: Path) -> Commands:
    accounts(tmp_path)
    return Commands(tmp_path)


def test_the_commands_show_a_secret_only_when_it_is_made(almanac: Commands) -> None:
    made = json.loads(almanac("add", URL, "--account", "acme", "--json"))
    rotated = json.loads(almanac("rotate", made["id"], "--overlap-hours", "1", "--json"))
    listed = almanac("list", "--json")
    for secret in (made["secret"], rotated["secret"]):
        assert secret.startswith("whsec_")
        assert secret not in listed + almanac("list")
    (endpoint,) = json.loads(listed)
    assert len(endpoint["secrets"]) == 2
    assert (endpoint["plan"], endpoint["no_push"]) == ("elite", None)
    assert endpoint["signature"] == "hex"
    almanac("enable", made["id"], "--off")
    assert json.loads(almanac("list", "--json"))[0]["disabled_reason"] == "by the operator"
    almanac("enable", made["id"])
    almanac("remove", made["id"])
    assert json.loads(almanac("list", "--json")) == []


def test_the_commands_list_and_requeue_dead_letters(almanac: Commands, tmp_path: Path) -> None:
    with Outbox(tmp_path / "outbox.sqlite") as outbox:
        enqueue(outbox, delivery(1), delivery(2))
        outbox.mark_failed("dlv_1", status=500, error=None, retry_at=None)
    assert [delivery["id"] for delivery in json.loads(almanac("deliveries", "--json"))] == [
        "dlv_2",
        "dlv_1",
    ]
    assert "dlv_1" in almanac("deliveries", "--dead")
    assert "dlv_2" not in almanac("deliveries", "--dead")
    almanac("deliveries", "--retry", "dlv_1")
    assert json.loads(almanac("deliveries", "--dead", "--json")) == []


def test_the_commands_report_an_error_in_one_line(almanac: Commands) -> None:
    assert "no push" in almanac("add", URL, "--account", "pro", exits=1)
    assert "almanac accounts keys create" in almanac("add", URL, "--account", "a", exits=1)
    made = almanac("add", URL, "--account", "acme", "--signature", "t,v1", "--json")
    assert json.loads(almanac("list", "--json"))[0]["id"] == json.loads(made)["id"]
    assert "t,v1" in almanac("list")
    assert "hex" in almanac("add", URL, "--account", "acme", "--signature", "md5", exits=2)
    assert "--allow-private" in almanac("add", "http://10.0.0.1/", "--account", "acme", exits=1)
    assert "no such endpoint" in almanac("remove", "ep_1", exits=1)
    assert "not a dead delivery" in almanac("deliveries", "--retry", "dlv_1", exits=1)
