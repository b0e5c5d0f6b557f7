"""`almanac inbox`: deliveries that are not landed are listed; rejected ones are settled."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from resources.inbox import ID_REUSED, Inbox
from tests.pipeline.conftest import Almanac
from tests.resources.inbox.deliveries import START, Clock, bodies_in, delivery, store
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.normalise.json_feeds import DeliveryHead, delivery_head
from warehouse.queries import connected

HOSTILE = b'{"id": "a\x1b[2Jb", "type": "events.created"'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data", wait_s=0)
    home.claim("sandbox:1")
    return home


def listed(almanac: Almanac, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(almanac("inbox", "list", *words, "--json").stdout)
    return found


def test_a_home_without_an_inbox_has_no_deliveries_and_gets_no_files(
    almanac: Almanac, home: Home
) -> None:
    assert "No delivery waits" in almanac("inbox", "list").stdout
    assert listed(almanac) == []
    almanac("inbox", "dismiss", "--all")
    assert not home.inbox.exists()


def test_the_list_has_the_newest_first_with_states_reasons_and_bodies(
    almanac: Almanac, home: Home
) -> None:
    store(home, START, delivery(1), HOSTILE, delivery(1, title="Other"))
    almanac("merge")
    store(home, START + timedelta(days=1), delivery(2))
    found = listed(almanac)
    assert [row["state"] for row in found] == ["waiting", "rejected", "rejected"]
    assert found[1]["reason"] == ID_REUSED
    assert (found[1]["id"], found[1]["event_id"]) == ("evt_dlv_1", "evt_1")
    assert found[0]["body"] == delivery(2).decode()
    assert len(listed(almanac, "--limit", "1")) == 1
    table = almanac("inbox", "list")
    assert ID_REUSED in " ".join(table.stdout.split())
    assert "1 wait to be landed. Next: almanac merge" in table.stdout
    assert "\x1b" not in table.output + almanac("inbox", "list", "--json").output


def test_only_rejected_deliveries_are_settled_and_a_wrong_name_changes_nothing(
    almanac: Almanac, home: Home
) -> None:
    store(home, START, delivery(1), delivery(1, title="Other"), b"[]")
    (waiting, *_) = Inbox(home).names()
    for command in ("retry", "dismiss"):
        assert "no rejected delivery" in almanac("inbox", command, waiting, code=1).stderr
        assert "give names" in almanac("inbox", command, code=2).stderr
        assert "give names" in almanac("inbox", command, waiting, "--all", code=2).stderr
    almanac("merge")
    reused, unreadable = Inbox(home).names("rejected")
    done = almanac("inbox", "retry", "--all").stdout
    assert f"{unreadable} stays" in done and "Landed: 1. Next: almanac merge" in done
    almanac("inbox", "dismiss", unreadable)
    assert bodies_in(home, "dismissed") == [b"[]"]
    assert [row["state"] for row in listed(almanac)] == ["dismissed"]
    assert reused not in Inbox(home).names("rejected")


def older(body: bytes) -> DeliveryHead:
    """Return the head as a version does that can't read updates."""
    head = delivery_head(body)
    if head.kind != "events.updated":
        return head
    return DeliveryHead(head.delivery_id, head.kind, None, "can't be read yet")


def history(home: Home) -> list[tuple[Any, ...]]:
    with connected(home.warehouse) as connection:
        versions = connection.sql(
            "SELECT * EXCLUDE (batch_id, published_seq) FROM event_versions "
            "ORDER BY event_id, version"
        ).fetchall()
        return versions + connection.sql("SELECT * FROM events ORDER BY event_id").fetchall()


def test_deliveries_that_an_upgrade_can_read_give_the_history_of_having_read_them_at_once(
    almanac: Almanac, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Home(tmp_path / "at once")
    at_once.claim("sandbox:1")
    for each in (home, at_once):
        clock = Clock()
        with monkeypatch.context() as patched:
            if each is home:
                patched.setattr("resources.inbox.delivery_head", older)
            for day in range(3):
                for number in (1, 2):
                    kind = "updated" if day == 1 else "created"
                    title = f"Event {number} on day {day}"
                    body = delivery(number + 10 * day, kind=kind, at=clock.now(), title=title)
                    store(
                        each,
                        clock.now(),
                        body.replace(f"evt_{number + 10 * day}".encode(), b"evt_1"),
                    )
                    clock.advance(seconds=1)
                Inbox(each).land(clock.now)
                merge(each)
                clock.advance(days=1)
    assert len(listed(almanac)) == 2
    assert history(home) != history(at_once)
    almanac("inbox", "retry", "--all")
    almanac("merge")
    assert listed(almanac) == []
    assert history(home) == history(at_once)
    assert len(history(home)) == 6 + 1
