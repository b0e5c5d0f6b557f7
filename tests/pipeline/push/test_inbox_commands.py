"""`almanac inbox`: what was received is listed and shown; dead letters are settled."""

import json
from pathlib import Path
from typing import Any

import pytest

from resources.inbox.deliveries import land_deliveries, waiting_deliveries
from resources.inbox.inbox_file import (
    ID_REUSED,
    Arrival,
    InboxReader,
    InboxWriter,
    inbox_path,
)
from resources.inbox.progress import read_progress
from tests.pipeline.conftest import Almanac
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.history.merge import merge, replay
from warehouse.home import Home
from warehouse.normalise.json_feeds import DeliveryHead, delivery_head
from warehouse.queries import connected

UNKNOWN = b'{"id": "evt_dlv_9", "type": "events.merged", "data": {"id": "evt_9"}}'
HOSTILE = b'{"id": "a\x1b[2Jb", "type": "events.created"'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "data", wait_s=0)
    home.claim("sandbox:1")
    return home


@pytest.fixture
def clock() -> Clock:
    return Clock()


def store(home: Home, clock: Clock, *bodies: bytes) -> None:
    with InboxWriter.open(home, clock.now) as writer:
        for body in bodies:
            writer.store([Arrival(body)])
            clock.advance(seconds=1)


def listed(almanac: Almanac, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(almanac("inbox", "list", *words, "--json").stdout)
    return found


def shown(almanac: Almanac, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(almanac("inbox", "show", name, "--json").stdout)
    return found


def test_a_home_without_an_inbox_has_no_deliveries_and_gets_no_files(
    almanac: Almanac, home: Home
) -> None:
    assert "No delivery was received" in almanac("inbox", "list").stdout
    assert listed(almanac) == []
    assert "no delivery has the id or number 'x'" in almanac("inbox", "show", "x", code=1).stderr
    almanac("inbox", "replay", "--all-dead")
    assert not (home.state / "inbox").exists()


def test_the_list_has_the_newest_first_with_their_states(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1), b"\xff", UNKNOWN)
    land_deliveries(home, clock.now)
    store(home, clock, delivery(1, title="Other"), delivery(2))
    found = listed(almanac)
    assert [(row["seq"], row["state"]) for row in found] == [
        *((5, "waiting"), (4, "dead"), (3, "landed"), (2, "dead"), (1, "landed"))
    ]
    assert [row["seq"] for row in listed(almanac, "--limit", "2")] == [5, 4]
    assert [row["seq"] for row in listed(almanac, "--dead")] == [4, 2]
    assert [row["seq"] for row in listed(almanac, "--dead", "--limit", "1")] == [4]
    assert [row["type"] for row in listed(almanac, "--unknown")] == ["events.merged"]
    table = almanac("inbox", "list").stdout
    assert ID_REUSED in table
    assert "2 wait to be landed. Next: almanac merge" in table
    assert "2 dead letters" in table


def test_a_delivery_is_shown_with_its_batch_and_its_body_also_once_it_is_cleared(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1))
    assert (shown(almanac, "1")["state"], shown(almanac, "1")["batch"]) == ("waiting", None)
    land_deliveries(home, clock.now)
    with InboxWriter.open(home, clock.now) as writer:
        assert writer.clear_bodies(before=clock.now(), landed_to=1) == 1
    found = shown(almanac, "evt_dlv_1")
    assert found["batch"] == home.landing.batch_ids()[0]
    assert (found["state"], found["meaning"], found["trouble"]) == ("landed", "created", None)
    assert found["body"] == delivery(1).decode()
    assert '"title": "Event 1"' in almanac("inbox", "show", "1").stdout


def test_bytes_that_are_no_text_are_shown_as_escapes_and_written_as_they_are(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, HOSTILE, b"\xff\x00\x1b")
    assert "\x1b" not in almanac("inbox", "list").output
    for number, text in (("1", r"a\x1b[2Jb"), ("2", r"\xff\x00\x1b")):
        found = almanac("inbox", "show", number).output
        assert text in found
        assert "\x1b" not in found
    assert shown(almanac, "2") | {"body": None, "body_base64": "/wAb"} == shown(almanac, "2")
    assert almanac("inbox", "show", "2", "--raw").stdout_bytes == b"\xff\x00\x1b"


def test_an_id_with_two_bodies_is_shown_by_number(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1), delivery(1, title="Other"))
    done = almanac("inbox", "show", "evt_dlv_1", code=1)
    assert "came with 2 bodies; name one by its number: 1, 2" in done.stderr
    assert '"title": "Other"' in almanac("inbox", "show", "2").stdout


def test_only_dead_letters_are_replayed_or_dismissed(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1), delivery(1, title="Other"), b"[]")
    for words in (("replay", "1"), ("dismiss", "2", "1")):
        assert "1 is waiting; expected a dead letter" in almanac("inbox", *words, code=1).stderr
    assert read_progress(home).to_replay == 0
    assert "can't be read by this version either" in almanac("inbox", "replay", "3", code=1).stderr
    assert "give ids or numbers" in almanac("inbox", "replay", code=2).stderr
    assert "give ids or numbers" in almanac("inbox", "replay", "2", "--all-dead", code=2).stderr
    assert "give ids or numbers" in almanac("inbox", "dismiss", code=2).stderr
    assert len(listed(almanac, "--dead")) == 2


def test_a_dismissed_letter_is_listed_no_longer_and_can_still_be_replayed(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1), delivery(1, title="Other"))
    # The id names the first body too, which is no dead letter.
    assert "1 dead letter dismissed" in almanac("inbox", "dismiss", "evt_dlv_1").stdout
    assert listed(almanac, "--dead") == []
    land_deliveries(home, clock.now)
    assert waiting_deliveries(home).count == 0
    almanac("inbox", "replay", "2")
    assert shown(almanac, "2")["state"] == "waiting"
    assert waiting_deliveries(home).count == 1
    almanac("inbox", "dismiss", "2")
    assert waiting_deliveries(home).count == 0


def test_all_dead_letters_that_can_be_read_are_replayed_and_the_others_stay(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1), b"\xff", delivery(1, title="Other"))
    done = almanac("inbox", "replay", "--all-dead").stdout
    assert "2 stays: this version can't read it either" in done
    assert "1 dead letter will be landed with the next landing" in done
    almanac("merge")
    assert [row["state"] for row in listed(almanac)] == ["replayed", "dead", "landed"]
    assert shown(almanac, "3")["batch"] in home.landing.batch_ids()
    assert "3 is replayed; expected" in almanac("inbox", "replay", "3", code=1).stderr


def older(body: bytes) -> DeliveryHead:
    """Return the head as a version does that can't read updates."""
    head = delivery_head(body)
    if head.kind != "events.updated":
        return head
    return DeliveryHead(head.delivery_id, head.kind, None, "can't be read yet")


def history(home: Home) -> list[tuple[Any, ...]]:
    with connected(home.warehouse) as connection:
        versions = connection.sql(
            "SELECT * EXCLUDE (batch_id) FROM event_versions ORDER BY event_id, version"
        ).fetchall()
        return versions + connection.sql("SELECT * FROM events ORDER BY event_id").fetchall()


def test_letters_that_an_upgrade_can_read_give_the_history_of_having_read_them_at_once(
    almanac: Almanac, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Home(tmp_path / "at once")
    at_once.claim("sandbox:1")
    for each in (home, at_once):
        clock = Clock()
        with monkeypatch.context() as patched:
            if each is home:
                patched.setattr("resources.inbox.inbox_file.delivery_head", older)
            for day in range(3):
                for number in (1, 2):
                    kind = "updated" if day == 1 else "created"
                    title = f"Event {number} on day {day}"
                    body = delivery(number + 10 * day, kind=kind, at=clock.now(), title=title)
                    same_event = body.replace(f"evt_{number + 10 * day}".encode(), b"evt_1")
                    store(each, clock, same_event)
                land_deliveries(each, clock.now)
                merge(each)
                clock.advance(days=1)
    assert len(listed(almanac, "--dead")) == 2
    assert history(home) != history(at_once)
    almanac("inbox", "replay", "--all-dead")
    almanac("merge")
    assert listed(almanac, "--dead") == []
    assert history(home) == history(at_once)
    assert len(history(home)) == 6 + 1
    assert InboxReader(home).count_in_trouble() == 2


def counted(home: Home) -> tuple[list[Any], int]:
    """Return status, good and rejected rows of each batch, and the number of events."""
    with connected(home.warehouse) as connection:
        batches = connection.execute("SELECT status, good, rejected FROM batches").fetchall()
        ((events,),) = connection.execute("SELECT count(*) FROM events").fetchall()
    return batches, events


def test_bad_deliveries_are_rejected_one_by_one_and_the_list_says_why(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    good = [delivery(number) for number in range(1_000)]
    bad = [delivery(number, dateType="sometime", date="soon") for number in range(1_000, 1_011)]
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([Arrival(body) for body in (*bad[:6], *good, *bad[6:])])
    almanac("merge")
    first = counted(home)
    assert first == ([("merged", 1_000, 11)], 1_000)
    replay(home)
    assert counted(home) == first
    rejected = {row["id"] for row in listed(almanac, "--limit", "2000") if row["rejected"]}
    assert rejected == {f"evt_dlv_{number}" for number in range(1_000, 1_011)}
    assert "landed: rejected: date" in " ".join(almanac("inbox", "list").stdout.split())
    assert "date" in shown(almanac, "evt_dlv_1000")["rejected"]
    assert shown(almanac, "evt_dlv_1")["rejected"] is None


def test_a_receiver_refuses_files_that_are_not_of_one_inbox(
    almanac: Almanac, home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, clock, delivery(1))
    land_deliveries(home, clock.now)
    inbox_path(home).unlink()
    monkeypatch.setenv("ALMANAC_WEBHOOK_SECRETS", "a secret for the tests of the inbox")
    assert "do not belong together" in almanac("receive", "--port", "0", code=1).stderr


def test_a_merge_beside_an_inbox_that_cannot_be_used_merges_what_is_landed_and_fails(
    almanac: Almanac, home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1))
    land_deliveries(home, clock.now)
    (home.state / "inbox" / "deliveries.sqlite").write_bytes(b"damaged" * 1_000)
    done = almanac("merge", code=1)
    assert "deliveries.sqlite of the inbox can't be used" in done.stderr
    assert home.landing.pending() == []
    assert len(history(home)) == 2
