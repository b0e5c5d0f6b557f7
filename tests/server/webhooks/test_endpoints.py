import json
import sqlite3
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from almanac.command_line import app
from catalog import ServerError
from catalog.contract.plans import PLANS
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.outbox import FeedPosition, Outbox, OutboxDelivery
from tests.server.webhooks.feeds import START, SetClock

URL = "https://hooks.example/in"
PLACE = FeedPosition("feed", 7, START)


@pytest.fixture
def folder(tmp_path: Path) -> ServiceDir:
    folder = ServiceDir(tmp_path / "service", wall=SetClock(START))
    for name, plan in {"acme": "elite", "pro": "pro"}.items():
        folder.key_book().create(name, PLANS[plan])
    return folder


def test_an_endpoint_is_kept_in_a_file_that_only_its_owner_reads(folder: ServiceDir) -> None:
    book = folder.endpoint_book()
    endpoint = book.add(URL, account="acme")
    assert (folder.path / "endpoints.json").stat().st_mode & 0o777 == 0o600
    assert folder.endpoint_book().endpoints() == (endpoint,)
    page = StringIO()
    Console(file=page, width=500).print(endpoint, book)
    for shown in (repr(endpoint), repr(book), page.getvalue()):
        assert endpoint.secret not in shown


def test_a_file_that_is_not_a_book_or_an_outbox_is_an_error_and_stays(folder: ServiceDir) -> None:
    secret = folder.endpoint_book().add(URL, account="acme").secret
    path = folder.path / "endpoints.json"
    path.write_text(broken := path.read_text().replace('"hex"', '"rot13"'))
    with pytest.raises(ServerError) as caught:
        folder.endpoint_book().add(URL, account="acme")
    assert path.read_text() == broken
    assert secret not in str(caught.value)
    path = folder.path / "deliveries.sqlite"
    path.write_bytes(text := b"not a database, and longer than the header of one " * 20)
    with pytest.raises(ServerError, match="move it away"):
        Outbox(path)
    assert path.read_bytes() == text


def delivery(number: int) -> OutboxDelivery:
    return OutboxDelivery(f"dlv_{number}", "ep_1", "events.created", b"{}", START, START)


def test_an_outbox_keeps_a_place_and_its_deliveries_together(folder: ServiceDir) -> None:
    with folder.outbox() as box:
        box.enqueue("ep_1", PLACE, [delivery(1)])
        with pytest.raises(sqlite3.Error):
            box.enqueue("ep_1", PLACE._replace(seq="eight"), [delivery(2)])
    assert (folder.path / "deliveries.sqlite").stat().st_mode & 0o777 == 0o600
    with folder.outbox() as box:
        assert (box.positions(), box.pending()) == ({"ep_1": PLACE}, (delivery(1),))
        with pytest.raises(ServerError):
            box.requeue("dlv_1", now=START)
        box.drop("ep_1", error="removed")
        box.mark_failed("dlv_1", status=500, error=None, retry_at=START)
        assert ([each.last_error for each in box.dead()], box.positions()) == (["removed"], {})
        box.requeue("dlv_1", now=START)
        box.mark_delivered("dlv_1")
        assert box.pending() == box.dead() == ()


def test_the_commands_manage_endpoints_and_deliveries(folder: ServiceDir) -> None:
    def almanac(*words: str, exits: int = 0) -> str:
        given = ["serve", "--dir", str(folder.path), "endpoints", *words]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == exits, result.output
        return result.output

    made = json.loads(almanac("add", URL, "--account", "acme", "--json"))
    listed = almanac("list", "--json")
    assert made["secret"].startswith("whsec_")
    assert made["secret"] not in listed + almanac("list")
    assert json.loads(listed)[0]["disabled_reason"] is None
    almanac("remove", made["id"])
    assert json.loads(almanac("list", "--json")) == []
    with folder.outbox() as box:
        box.enqueue("ep_1", PLACE, [delivery(1), delivery(2)])
        box.mark_failed("dlv_1", status=500, error=None, retry_at=None)
    states = [(each["id"], each["state"]) for each in json.loads(almanac("deliveries", "--json"))]
    assert states == [("dlv_2", "waiting"), ("dlv_1", "dead")]
    assert "dlv_2" not in almanac("deliveries", "--dead")
    almanac("deliveries", "--retry", "dlv_1")
    assert json.loads(almanac("deliveries", "--dead", "--json")) == []
    for words, expected in {
        ("add", URL, "--account", "pro"): "no push",
        ("add", URL, "--account", "a"): "`keys create` makes one",
        ("add", "http://10.0.0.1/", "--account", "acme"): "--allow-private",
        ("remove", "ep_1"): "no such endpoint",
        ("deliveries", "--retry", "dlv_1"): "not a dead delivery",
    }.items():
        assert expected in almanac(*words, exits=1)
