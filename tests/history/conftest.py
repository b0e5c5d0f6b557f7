"""Homes to merge: made by hand, and thirteen days of a sandbox, with more batches if `long`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome
from tests.history.stories.merged_story import MergedStory, land_story
from tests.history.stories.scenario import DEFAULT, QUICK


@pytest.fixture(autouse=True)
def disk_that_never_loses() -> Iterator[None]:
    """Set for each test, so that tests of other folders wait for the disk as users do."""
    with without_syncs():
        yield


@pytest.fixture
def story(tmp_path: Path) -> HandmadeHome:
    return HandmadeHome(tmp_path)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(QUICK, id="quick"),
        pytest.param(DEFAULT, id="default", marks=pytest.mark.long),
    ],
)
def landed_story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MergedStory:
    """Thirteen days of a small world."""
    with without_syncs():
        return land_story(request.param, tmp_path_factory.mktemp("story"))
