from collections.abc import Iterator

import pytest

from tests.history.stories.disk import without_syncs
from tests.history.stories.merged_story import MergedStory, tell
from tests.history.stories.scenario import DEFAULT, LARGE


@pytest.fixture(autouse=True)
def disk_that_never_loses() -> Iterator[None]:
    """For each test, so that those of other folders wait for the disk as users do."""
    with without_syncs():
        yield


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> MergedStory:
    """Thirteen days of a small world."""
    with without_syncs():
        return tell(DEFAULT, tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="session")
def large_story(tmp_path_factory: pytest.TempPathFactory) -> MergedStory:
    """Thirteen days of a larger world, looked at more often."""
    with without_syncs():
        return tell(LARGE, tmp_path_factory.mktemp("told-at-large"))
