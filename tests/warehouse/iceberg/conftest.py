"""A small published lake with its Iceberg tables in the home, and a SQLite catalog."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.home import Home
from warehouse.iceberg.publication_commit import IcebergReport, commit_publication
from warehouse.iceberg_place import IcebergPlace
from warehouse.phases import Step

HISTORY = [
    Plan((Op(0, seed=1), Op(1, seed=2), Op(2, seed=5)), coins=3),
    Plan((Op(0, "reschedule", 3), Op(3, seed=4)), coins=2),
]


class IcebergHome:
    """A home whose history is given as plans, with its Iceberg tables."""

    def __init__(self, root: Path) -> None:
        folder = root / "iceberg"
        self.root = root
        self.lake = SmallLake(root)
        self.place = IcebergPlace(f"sqlite:///{folder}/catalog.sqlite", f"file://{folder}")
        self.home = Home(root, iceberg=self.place)

    def publish(self, plans: Sequence[Plan]) -> None:
        self.lake.set_plans(plans)
        self.lake.publish()

    def commit(self, step: Step = lambda _: None) -> IcebergReport:
        report = commit_publication(self.home, self.place, step=step)
        assert report is not None
        return report


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergHome:
    return IcebergHome(tmp_path)


@pytest.fixture
def committed(iceberg: IcebergHome) -> IcebergHome:
    iceberg.publish(HISTORY)
    assert not iceberg.commit().why_failed
    return iceberg
