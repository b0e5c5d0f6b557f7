"""A home with chosen batches, landed in milliseconds."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.settings import Settings
from tests.pipeline.homes_in_days import settings_of
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Pull, Scope

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)
PULLED: tuple[Feed, ...] = ("export", "events", "cancellations", "coins", "categories")


class SmallHome:
    """A stamped home, its settings, and what lands in it."""

    def __init__(self, root: Path, source: str = "sandbox:1", **given: Any) -> None:
        self.settings: Settings = settings_of(root, **given)
        self.home = Home(root)
        self.home.claim(source)

    def land(
        self,
        *feeds: Feed,
        at: datetime = NOW,
        plan: str = "elite",
        scope: Scope | None = None,
        why_incomplete: str | None = None,
        rows_claimed: int | None = None,
        body: bytes = b'{"data": []}',
    ) -> list[Manifest]:
        """Land a batch of each named feed, or of every feed, at an instant."""
        return [
            self.home.landing.land(
                Pull(
                    feed=feed,
                    scope=scope or Scope(),
                    plan=plan,
                    source="sandbox:1",
                    observed_at=at,
                    content_at=at,
                    landed_at=at,
                    requests=1,
                    rows_claimed=rows_claimed,
                    why_incomplete=why_incomplete,
                ),
                [(body, None)],
            )
            for feed in feeds or PULLED
        ]
