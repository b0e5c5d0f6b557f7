from pathlib import Path

import pytest

from catalog import ServerError
from catalog.contract.plans import PLANS
from catalog.server.accounts import (
    JsonFile,
    KeyBook,
    UsageBook,
    UsageCounts,
    key_digest,
)
from tests.server.bare_server import NOW, ManualClock, bare_server, grant


def test_usage_survives_a_restart_and_a_write_that_fails_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.write_text("a file where the folder should be")
    key, file = grant("free", "key"), JsonFile(folder / "usage.json", UsageCounts)
    book = UsageBook()
    book._file = file
    book.charge(key, NOW, 3)
    book.flush()
    folder.unlink()
    book.flush()
    assert UsageBook(file).used(key, NOW) == 3


class TestKeyBook:
    def book(self, folder: Path, clock: ManualClock | None = None) -> KeyBook:
        return KeyBook(folder / "keys.json", wall=clock or ManualClock())

    def test_a_key_works_until_it_is_revoked_while_the_server_runs(self, tmp_path: Path) -> None:
        clock = ManualClock()
        book = self.book(tmp_path, clock)
        with bare_server(ring=book) as server:
            key, stored = book.create("acme", PLANS["standard"])
            usage = server.get("/v2/usage", key).json()
            assert (usage["plan"], usage["rate"], usage["burst"]) == ("standard", 3, 15)
            book.revoke(stored.id)
            assert server.get("/v2/usage", key).status_code == 403

    def test_an_account_has_at_most_its_plans_number_of_keys(self, tmp_path: Path) -> None:
        book = self.book(tmp_path)
        for plan in (PLANS["free"], PLANS["standard"]):
            made = [book.create(plan.name, plan)[1] for _ in range(plan.keys_max or 0)]
            with pytest.raises(ServerError, match="revoke one first"):
                book.create(plan.name, plan)
            book.revoke(made[0].id)
            with pytest.raises(ServerError, match="no key in use"):
                book.revoke(made[0].id)
            book.create(plan.name, plan)
        with pytest.raises(ServerError, match="another account"):
            book.create("free", PLANS["pro"])

    def test_the_file_holds_no_key_and_only_its_owner_reads_it(self, tmp_path: Path) -> None:
        book = self.book(tmp_path)
        key, _ = book.create("acme", PLANS["free"])
        path = tmp_path / "keys.json"
        assert key not in path.read_text()
        assert key_digest(key) in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
        assert key not in repr(book.grants())

    def test_a_damaged_file_is_not_changed_and_known_keys_stay_valid(self, tmp_path: Path) -> None:
        book, path = self.book(tmp_path), tmp_path / "keys.json"
        key, _ = book.create("acme", PLANS["free"])
        assert book.find(key)
        for text in (path.read_text().replace('"free"', '"gold"'), "{damaged"):
            path.write_text(text)
            assert book.find(key)
            assert self.book(tmp_path).find(key) is None
            with pytest.raises(ServerError, match="was not changed"):
                book.create("other", PLANS["free"])
            assert path.read_text() == text

    def test_enterprise_alone_sets_its_limits(self, tmp_path: Path) -> None:
        book = self.book(tmp_path)
        with pytest.raises(ServerError, match="only Enterprise"):
            book.create("acme", PLANS["elite"], rate_per_s=50)
        key, _ = book.create("large", PLANS["enterprise"], rate_per_s=7, burst=9, monthly_quota=11)
        found = book.find(key)
        assert found and (found.rate_per_s, found.burst, found.monthly_quota) == (7, 9, 11)
        with pytest.raises(ServerError, match="name"):
            book.create(" ", PLANS["free"])
