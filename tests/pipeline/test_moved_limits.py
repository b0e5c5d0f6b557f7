"""The spent quota of a machine that failed is counted by the machine that continues."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.home_location import locate_home
from pipeline.moved_limits import adopt_limits, note_limits
from pipeline.settings import Settings, SettingsError
from resources.limits.allowance import Allowance, Pace
from resources.limits.ledger import Ledger
from tests.warehouse.landed_days import FIRST, land
from warehouse.home import Home

NOW = FIRST + timedelta(days=1)
RESETS_AT = int(datetime(2026, 4, 1, tzinfo=UTC).timestamp())
SPENT = Allowance(0, allowed=3000, used=120, resets_at=RESETS_AT, spent=(100, 15, 5))


def ledger_of(machine: Path, state: Allowance | None = None) -> Ledger:
    ledger = Ledger(machine / "key.ledger", Pace(1, 1))
    with ledger.locked() as entry:
        if state is not None:
            entry.state = state
    return ledger


def test_a_new_machine_counts_what_was_spent_and_what_was_landed_since(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    note_limits(home, ledger_of(tmp_path / "first", SPENT), NOW)
    land(home, 0)
    land(home, 2)
    second = ledger_of(tmp_path / "second")
    adopt_limits(home, second, NOW)
    state = second.peek()
    assert (state.allowed, state.used, state.resets_at) == (3000, 121, RESETS_AT)
    assert state.spent == (101, 15, 5)
    adopt_limits(home, second, NOW)
    assert second.peek().used == 121


def test_a_machine_that_has_counted_more_keeps_its_count(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    note_limits(home, ledger_of(tmp_path / "first", SPENT), NOW)
    later = Allowance(0, allowed=3000, used=200, resets_at=RESETS_AT + 5, spent=(90, 100, 10))
    second = ledger_of(tmp_path / "second", later)
    adopt_limits(home, second, NOW)
    assert (second.peek().used, second.peek().spent) == (200, (100, 100, 10))


def test_the_count_of_a_past_month_or_of_another_key_is_ignored(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    note_limits(home, ledger_of(tmp_path / "first", SPENT), NOW)
    second = ledger_of(tmp_path / "second")
    adopt_limits(home, second, datetime.fromtimestamp(RESETS_AT + 1, UTC))
    other = Ledger(tmp_path / "second" / "other.ledger", Pace(1, 1))
    adopt_limits(home, other, NOW)
    assert second.peek().used == 0 and not other.path.exists()


def test_the_machine_of_the_note_does_not_count_twice(tmp_path: Path) -> None:
    home, first = Home(tmp_path / "home"), ledger_of(tmp_path / "first", SPENT)
    note_limits(home, first, NOW)
    land(home, 2)
    adopt_limits(home, first, NOW)
    assert first.peek().used == 120


def test_a_bucket_needs_a_database(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, bucket="s3://bucket/folder")
    with pytest.raises(SettingsError, match="ALMANAC_BUCKET is set, but ALMANAC_POSTGRES is not"):
        locate_home(settings)


def test_a_bucket_address_with_a_secret_is_refused_without_showing_it(tmp_path: Path) -> None:
    address = SecretStr("postgresql://user:canary@host/name")
    settings = Settings(home=tmp_path, bucket="s3://key:canary@bucket", postgres=address)
    with pytest.raises(SettingsError, match="ALMANAC_BUCKET: expected") as raised:
        locate_home(settings)
    assert "canary" not in str(raised.value)
