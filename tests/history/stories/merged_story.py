"""A landed story, its oracle, and homes into which it is merged piece by piece."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.history.model.comparison import EVENT_COLUMNS, Rows, published
from tests.history.model.observations import Showing
from tests.history.model.oracle import Oracle
from tests.history.stories.relanded import home_with_bodies, land_again
from tests.history.stories.scenario import watch
from tests.history.stories.story import Setting, Story
from tests.reading import reading
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Manifest

Pieces = Iterable[Sequence[str]]
"""Batch ids; each piece is merged before the next is landed."""


@dataclass(frozen=True, slots=True)
class MergedStory:
    """A story, and the folder of its batches."""

    story: Story
    landing: Path
    showing: Showing

    def oracle(self) -> Oracle:
        """Return an oracle that has folded every observation."""
        oracle = Oracle(self.showing)
        for observation in self.story.folded():
            oracle.fold(observation)
        return oracle


@dataclass(slots=True)
class Merged:
    """A home, and the events published at moments when all earlier observations were landed."""

    home: Home
    moments: list[tuple[int, Rows]] = field(default_factory=list)
    """The number of observations, in the order of the fold, and the rows of `events`."""


def land_story(setting: Setting, root: Path) -> MergedStory:
    story, world = watch(setting, root / "landing", root / "scratch")
    return MergedStory(story, root / "landing", Showing(world))


def merged_in(story: MergedStory, root: Path, pieces: Pieces) -> Merged:
    """Merge a story piece by piece, and keep the states that can be compared with the oracle."""
    merged = Merged(home_with_bodies(story.landing, root))
    order = [observation.batch_id for observation in story.story.folded()]
    landed: set[str] = set()
    for piece in pieces:
        land_again(story.landing, merged.home, piece)
        merge(merged.home)
        landed.update(piece)
        count = sum(batch_id in landed for batch_id in order)
        if landed.issuperset(order[:count]):
            with reading(merged.home) as connection:
                merged.moments.append((count, published(connection, "events", EVENT_COLUMNS)))
    return merged


def after_midnight(batches: Sequence[Manifest]) -> Iterator[list[str]]:
    """Yield the batches in the order they were landed, a piece for each day."""
    part: list[str] = []
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        part.append(batch.batch_id)
        midnight = batch.observed_at.hour == 0 and batch.feed != "deliveries"
        if following is None or (midnight and following.observed_at.hour > 0):
            yield part
            part = []
