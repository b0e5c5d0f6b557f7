"""The ledger's file: shared by processes that may be killed, damaged, or of another boot."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from resources.errors import CatalogError, QuotaUnknown
from resources.limits.ledger import UNKNOWN, Allowance, Ledger, Pace, ReportedLimits, ledger_name
from resources.limits.limiter import Limiter
from tests.resources.limits.moved_clock import RESET, Machine, with_usage
from tests.resources.limits.reserving import NOTE

PACE = Pace(5.0, 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "key.sqlite"


def test_a_request_of_one_process_is_counted_by_another(path: Path) -> None:
    machine = Machine()
    with_usage(machine.limiter(path, PACE), used=10).acquire()
    other = machine.limiter(path, PACE)
    other.acquire()
    state = other.ledger.peek()
    assert (state.used, state.own, state.resets_at) == (12, 2, RESET.timestamp())


@pytest.mark.parametrize("harm", ["text", "zeros", "cut", "empty", "table"])
def test_a_damaged_ledger_is_an_empty_bucket_and_no_quota(path: Path, harm: str) -> None:
    machine = Machine()
    limiter = with_usage(machine.limiter(path, PACE))
    limiter.acquire()
    machine.ns += 10**12
    whole = path.read_bytes()
    page = int.from_bytes(whole[16:18], "big")
    path.write_bytes(
        {
            "text": b"damaged",
            "zeros": whole[:100] + bytes(len(whole) - 100),
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "table": whole[:page] + b"\xff" * (len(whole) - page),
        }[harm]
    )
    assert limiter.ledger.peek().allowed == UNKNOWN
    with pytest.raises(QuotaUnknown):
        limiter.acquire()
    began = machine.slept_s
    limiter.acquire(for_usage=True)
    assert machine.slept_s - began == pytest.approx(0.2, abs=0.01)


def test_a_reader_creates_and_writes_nothing(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.peek() == Allowance()
    assert not path.exists()
    with_usage(Machine().limiter(path, PACE))
    path.chmod(0o400)
    before = path.read_bytes()
    assert ledger.peek().allowed == 1_000
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CatalogError, match="ALMANAC_STATE"):
        Machine().limiter(tmp_path / "file" / "key.sqlite", PACE).acquire()


def test_the_name_of_a_ledger_reveals_no_key() -> None:
    name = ledger_name("https://api.example", SecretStr("canary-5f7e"))
    assert "canary" not in name
    assert name == ledger_name("https://api.example", SecretStr("canary-5f7e"))
    assert name != ledger_name("https://api.example", SecretStr("canary-5f7f"))


class Run:
    """Processes that take tokens, and what they left."""

    def __init__(
        self, path: Path, rate: float, burst: int, processes: int, *, kills: int = 0,
        allowed: int | None = None, reserve: int = 0,
    ) -> None:  # fmt: skip
        notes = path.with_name("notes")
        self.ledger = Ledger(path)
        limiter = Limiter(
            self.ledger, lambda state: Pace(rate, burst), clock=lambda: datetime.now(UTC)
        )
        limiter.on_usage(ReportedLimits(allowed, 0, datetime.now(UTC) + timedelta(days=9)))
        words = map(str, (path, notes, rate, burst, processes, kills, reserve))
        program = (sys.executable, "-m", "tests.resources.limits.reserving")
        subprocess.run([*program, *words], check=True, timeout=60)
        self.granted_ns = sorted(at_ns for (at_ns,) in NOTE.iter_unpack(notes.read_bytes()))
        self.used = self.ledger.peek().used
        # A process suspended between a token and its note is late with one note.
        level = [place - at_ns * rate / 1e9 for place, at_ns in enumerate(self.granted_ns)]
        fullest = max(now - min(level[: place + 1]) + 1 for place, now in enumerate(level))
        assert fullest <= burst + processes


def test_four_processes_use_the_rate_and_stop_exactly_at_the_reserve(path: Path) -> None:
    run = Run(path, 200.0, 10, 4, allowed=400, reserve=80)
    assert len(run.granted_ns) == run.used == 320
    took_s = (run.granted_ns[-1] - run.granted_ns[0]) / 1e9
    assert took_s <= 320 / 200.0 / 0.9


def test_a_killed_process_costs_at_most_its_own_request_and_damages_nothing(path: Path) -> None:
    run = Run(path, 2_000.0, 20, 4, kills=60)
    # The last four are killed too.
    assert len(run.granted_ns) <= run.used <= len(run.granted_ns) + 60 + 4
    assert run.ledger.peek().allowed != UNKNOWN
