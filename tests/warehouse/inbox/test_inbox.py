"""The inbox: durable files, each delivery in one landed batch, whatever is killed."""

import os
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from almanac.core.errors import WarehouseError
from almanac.core.progress import listening
from tests.warehouse.inbox.deliveries import START, Clock, bodies_in, delivery, landed_bodies, store
from warehouse.files.locks import hold_lock
from warehouse.home import Home
from warehouse.landing.inbox import ID_REUSED, Inbox, State, list_receipts
from warehouse.landing.landing import Landing

HOUR = timedelta(hours=1)
WITHOUT_ID = b'{"type": "events.created", "data": {"id": "evt_1"}}'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    return home


@pytest.fixture
def clock() -> Clock:
    return Clock()


def land(home: Home) -> int:
    """Land what waits; return the number of landed deliveries."""
    return sum(len(manifest.pages) for manifest in Inbox(home).land(lambda: START))


def landed(home: Home) -> list[bytes]:
    return [body for bodies in landed_bodies(home).values() for body in bodies]


def test_a_delivery_is_a_file_of_its_bytes_named_by_receipt_and_hash(home: Home) -> None:
    store(home, START, body := delivery(1))
    ((name,), (file,)) = Inbox(home).names(), home.inbox.iterdir()
    assert (file.name, file.read_bytes()) == (name, body)
    assert re.fullmatch(r"20260301T120000\.000000Z-[0-9a-f]{32}\.json", name)
    assert Inbox(home).read(name, "waiting").received_at == START


def test_a_stored_delivery_waited_for_the_disk(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("almanac.core.files.sync", synced.append)
    store(home, START, delivery(1))
    assert home.inbox in synced, "the name of the file"
    assert any(path.parent == home.inbox for path in synced), "its content"


@pytest.mark.parametrize("pause", [timedelta(0), HOUR, timedelta(days=3)])
@pytest.mark.parametrize("body", [delivery(1), WITHOUT_ID], ids=["with id", "without id"])
def test_a_delivery_that_is_sent_again_is_landed_once(
    home: Home, body: bytes, pause: timedelta
) -> None:
    store(home, START, body, body)
    assert land(home) == 1
    store(home, START + pause, body)
    assert land(home) == 0
    assert landed(home) == [body]
    assert Inbox(home).names() == []


def test_another_body_under_a_known_id_is_rejected_until_a_person_lands_it(home: Home) -> None:
    other = delivery(1, title="Other")
    for _ in range(2):
        store(home, START, delivery(1), other, other)
        land(home)
    assert landed(home) == [delivery(1)]
    assert bodies_in(home, "rejected") == [other]
    (name,) = Inbox(home).names("rejected")
    assert Inbox(home).reason(name, "rejected") == ID_REUSED
    Inbox(home).retry([name], lambda: START)
    assert landed(home) == [delivery(1), other]
    assert Inbox(home).names("rejected") == []
    assert list((home.inbox / "rejected").iterdir()) == []
    store(home, START, other)
    assert land(home) == 0


def test_signed_bytes_that_are_no_delivery_are_rejected_and_stay_when_tried_again(
    home: Home,
) -> None:
    store(home, START, b"\xff\x00", b"[]", delivery(1), b"[]")
    assert land(home) == 1
    assert landed(home) == [delivery(1)]
    assert bodies_in(home, "rejected") == [b"\xff\x00", b"[]"]
    first, second = Inbox(home).names("rejected")
    assert "expected an object" in str(Inbox(home).reason(second, "rejected"))
    assert Inbox(home).retry([first, second], lambda: START) == []
    Inbox(home).dismiss([first])
    assert bodies_in(home, "rejected") == [b"[]"]
    assert bodies_in(home, "dismissed") == [b"\xff\x00"]
    assert Inbox(home).reason(first, "dismissed") is not None
    store(home, START + HOUR, b"\xff\x00", b"[]")
    assert land(home) == 0
    assert len(Inbox(home).names("rejected")) == 1, "known ones are not rejected twice"


def test_deliveries_are_landed_by_day_of_receipt_with_their_own_times(home: Home) -> None:
    store(home, START, delivery(1), delivery(2))
    store(home, START + 13 * HOUR, delivery(3))
    manifests = Inbox(home).land(lambda: START + 99 * HOUR)
    assert [[body for _, body in home.landing.pages(found)] for found in manifests] == [
        [delivery(1), delivery(2)],
        [delivery(3)],
    ]
    microsecond = timedelta(microseconds=1)
    assert [page.received_at for page in manifests[0].pages] == [START, START + microsecond]
    assert [found.observed_at for found in manifests] == [START + microsecond, START + 13 * HOUR]
    assert manifests[0].plan == "elite"
    assert list_receipts(home, START)[-1] == START + 13 * HOUR


class Killed(BaseException):
    pass


@given(st.data())
def test_a_killed_landing_lands_each_delivery_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """It is killed before any change of a file, up to three times; some arrive in between."""
    home = Home(tmp_path_factory.mktemp("killed") / "home", wait_s=0)
    home.claim("sandbox:1")
    numbers = iter(range(100))
    sent: list[bytes] = []
    for _ in range(data.draw(st.integers(1, 3), label="kills")):
        new = [delivery(next(numbers)) for _ in range(data.draw(st.integers(0, 4), label="new"))]
        sent += new
        store(home, START + len(sent) * HOUR, *new, *data.draw(st.permutations(sent)), b"[]")
        left = data.draw(st.integers(0, 25), label="changes before the kill")
        with pytest.MonkeyPatch.context() as patched:
            for module, name in ((os, "unlink"), (os, "replace")):
                patched.setattr(module, name, _killing(getattr(module, name), left))
            with suppress(Killed):
                land(home)
    land(home)
    assert sorted(landed(home)) == sorted(sent)
    assert bodies_in(home, "rejected") == [b"[]"]
    assert Inbox(home).names() == []


def _killing(real, left: int):  # type: ignore[no-untyped-def]
    counts = iter(range(left))

    def call(*args, **named):  # type: ignore[no-untyped-def]
        if next(counts, None) is None:
            raise Killed
        return real(*args, **named)

    return call


def test_a_landing_that_fails_leaves_all_that_waits(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, START, delivery(1))

    def fail(*given: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(Landing, "land", fail)
        land(home)
    assert bodies_in(home) == [delivery(1)]
    assert land(home) == 1


def test_landing_needs_the_stamp_and_the_lock_and_a_home_with_deliveries_keeps_its_source(
    home: Home,
) -> None:
    store(home, START, delivery(1))
    with pytest.raises(WarehouseError, match="holds data of sandbox:1"):
        home.check("sandbox:2")
    with (
        hold_lock(home.state / "inbox.lock", "to test", wait_s=0),
        pytest.raises(WarehouseError, match="is using this home"),
    ):
        land(home)
    (home.root / "home.json").unlink()
    with pytest.raises(WarehouseError, match=r"no home\.json"):
        land(home)
    assert bodies_in(home) == [delivery(1)]


def test_bodies_with_one_id_that_arrive_in_one_microsecond_are_both_kept(home: Home) -> None:
    for body in (delivery(1), delivery(1, title="Other")):
        Inbox(home).store(body, START)
    assert len(Inbox(home).names()) == 2


def test_the_folders_are_listed_once_however_many_are_rejected(home: Home) -> None:
    class CountingInbox(Inbox):
        listed = 0

        def names(self, state: State = "waiting") -> list[str]:
            self.listed += 1
            return super().names(state)

    found, phases = [], []
    for count in (1, 20):
        store(home, START, *(b"%d, of %d" % (number, count) for number in range(count)))
        inbox = CountingInbox(home)
        with listening(phase=lambda *phase: phases.append(phase)):
            assert inbox.land(lambda: START) == []
        found.append(inbox.listed)
    assert found[0] == found[1]
    assert phases == [("land deliveries", 0, 1), ("land deliveries", 0, 20)]
    assert len(Inbox(home).names("rejected")) == 21
