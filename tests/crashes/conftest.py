"""Homes in their state before a kill: landed once, copied for each kill."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.crashes.killed_home import Death, Order
from tests.crashes.rotting import land_again, make_home
from tests.crashes.tables import Digests, published, tables_of, whole
from warehouse.history.merge import merge
from warehouse.home import Home

ROOT = Path(__file__).parent.parent.parent
Kill = Callable[..., Death]
WITHHELD = {"append": slice(5, None), "rewind": slice(4, 6), "done": slice(0)}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Homes with unmerged batches, and their tables before and after the merge.

    anew    nothing is merged
    append  the last batches are not merged
    rewind  some batches of the second of three days are not merged
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
def made(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with two merged days and a pending batch; copy it before you change it."""
    return make_home(tmp_path_factory.mktemp("made") / "home")


@pytest.fixture(scope="session")
def prepared(made: Home, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("prepared")
    ids = made.landing.batch_ids()
    for name, late in {"anew": slice(None), **WITHHELD}.items():
        home = Home(root / name)
        home.claim(str(made.stamp().source))  # type: ignore[union-attr]
        land_again(made.landing, home.landing, [each for each in ids if each not in ids[late]])
        if name in WITHHELD:
            merge(home)
        land_again(made.landing, home.landing, ids[late])
    before = {name: published(Home(root / name).warehouse) for name in WITHHELD}
    return Prepared(root, before, whole(Home(root / "done")))


@pytest.fixture(scope="session")
def killer() -> Iterator[Kill]:
    """Return a function that carries out an order in its own process."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crashes.killed_home"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        commands, deaths = process.stdin, process.stdout
        assert commands is not None and deaths is not None

        def carry_out(home: Home, work: str, **where: object) -> Death:
            order = Order(root=str(home.root), work=work, **where)  # type: ignore[arg-type]
            commands.write(msgspec.json.encode(order).decode() + "\n")
            commands.flush()
            return msgspec.json.decode(deaths.readline(), type=Death)

        yield carry_out
