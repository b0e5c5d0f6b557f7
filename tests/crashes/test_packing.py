"""A kill at any moment of packing loses no body, and leaves no half file as a checkpoint."""

import shutil
from pathlib import Path

import pytest

from tests.crashes.conftest import Kill
from tests.crashes.tables import an_hour_passes, unfinished
from tests.warehouse.landed_days import history
from tests.warehouse.test_body_files import bases, export, land_export
from warehouse.history import checkpoints
from warehouse.history.merge import merge
from warehouse.home import Home

DAYS = 8
POINT = "disk:next"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose next merge packs a checkpoint and six bodies."""
    home = Home(tmp_path_factory.mktemp("waiting") / "home")
    home.claim("s")
    for day in range(DAYS):
        if day == DAYS - 1:
            merge(home)
        land_export(home, day, export(day))
        if day == 0:
            merge(home)
    return home


@pytest.mark.parametrize("is_every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.timeout(1800)
def test_a_merge_killed_while_it_packs_loses_nothing(
    is_every: bool, waiting: Home, killer: Kill, tmp_path: Path
) -> None:
    whole = copied(waiting, tmp_path / "whole")
    changes = killer(whole, "merge").points[POINT]
    expected, packed = history(whole), bases(whole)
    assert len([base for base in packed.values() if base is not None]) == 6
    # Bodies are packed last, checkpoints before them.
    few = (changes // 2, changes - 22, changes - 7)
    for nth in range(1, changes + 1) if is_every else few:
        home = copied(waiting, tmp_path / "home")
        assert killer(home, "merge", point=POINT, nth=nth).killed
        for day, batch_id in enumerate(home.landing.batch_ids()):
            body = home.landing.body(home.landing.manifest(batch_id))
            assert b"".join(body) == export(day)
        an_hour_passes(home)
        merge(home)
        assert history(home) == expected
        assert unfinished(home) == []
        land_export(home, DAYS, export(DAYS))
        merge(home)
        assert bases(home).items() >= packed.items()
        assert all(checkpoints.restore(home, day) for day in checkpoints.list_days(home))


def copied(home: Home, root: Path) -> Home:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(home.root, root)
    return Home(root)
