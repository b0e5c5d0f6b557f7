"""Homes in their state before a kill: landed once, copied for each kill."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from catalog.sandbox.sandbox import Sandbox
from tests.crashes.killed_home import Death, Order
from tests.crashes.pulls import SOURCE, land_again, pull_days
from tests.crashes.tables import Digests, published, tables_of, whole
from warehouse.history.merge import merge
from warehouse.home import Home

ROOT = Path(__file__).parent.parent.parent
Kill = Callable[..., Death]
FIRST = "20260226"
"""The home `day` has only the batches before this one: the first day."""
LAST = "20260227T10"
LATE = ("20260226", ("events", "deliveries"))
"""Landed last in the home `rewind`: batches of the second day."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Homes with unmerged batches, and their tables before and after the merge.

    anew    nothing is merged
    append  the later batches of the last day are not merged
    rewind  some batches of the second day are not merged
    done    everything is merged
    """

    root: Path
    before: dict[str, Digests]
    after: Digests

    def states(self, name: str) -> list[Digests]:
        """Return the digests that the warehouse of a home may have until it is merged."""
        return [*([self.before[name]] if name in self.before else ()), tables_of(self.after)]

    def copy(self, name: str, target: Path) -> Home:
        """Copy a home to a folder, and replace its content."""
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(self.root / name, target)
        return Home(target)


@pytest.fixture(scope="session")
def prepared(almanac_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("prepared")
    pull_days(almanac_sandbox, Home(root / "anew").landing)
    return prepare(root)


def prepare(root: Path) -> Prepared:
    """Make the other homes from the one without a merge."""
    Home(root / "anew").claim(SOURCE)
    landed = Home(root / "anew").landing
    ids = landed.batch_ids()
    day, feeds = LATE
    late = [
        batch_id for batch_id in ids if batch_id.startswith(day) and batch_id.split("-")[1] in feeds
    ]
    for name, withheld in (
        ("append", [batch_id for batch_id in ids if batch_id > LAST]),
        ("rewind", late),
        ("done", []),
    ):
        home = Home(root / name)
        home.claim(SOURCE)
        land_again(landed, home.landing, [each for each in ids if each not in withheld])
        merge(home)
        land_again(landed, home.landing, withheld)
    done = Home(root / "done")
    land_again(
        landed, Home(root / "day").landing, [batch_id for batch_id in ids if batch_id < FIRST]
    )
    before = {name: published(Home(root / name).warehouse) for name in ("append", "rewind", "done")}
    return Prepared(root, before, whole(done))


@pytest.fixture(scope="session")
def killer() -> Iterator[Kill]:
    """Return a function that carries out an order in its own process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crashes.killed_home"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def carry_out(home: Home, work: str, **where: object) -> Death:
        assert process.stdin is not None
        assert process.stdout is not None
        order = Order(root=str(home.root), work=work, **where)  # type: ignore[arg-type]
        process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        process.stdin.flush()
        return msgspec.json.decode(process.stdout.readline(), type=Death)

    yield carry_out
    process.stdin.close()
    process.wait()
