"""Pages over a warehouse whose versions are made by hand."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.routing import Router
from starlette.testclient import TestClient

from almanac.database import open_database
from application.web.site import page_routes
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known

FIRST = datetime(2026, 3, 1, 6, tzinfo=UTC)
"""The first pull, a Sunday."""
DAY = timedelta(days=1)
NOW = FIRST + 3 * DAY + timedelta(hours=6)
PULLS = tuple(FIRST + number * DAY for number in range(4))


@contextmanager
def serve_pages(
    folder: Path,
    versions: Sequence[Known],
    *,
    now: datetime = NOW,
    pulls: Sequence[datetime] = PULLS,
    **published: Any,
) -> Iterator[TestClient]:
    """Yield a client of the pages, whose clock stands at `now`."""
    file = publish_by_hand(folder / "warehouse.duckdb", versions, pulls=pulls, **published)
    with open_database(file, clock=lambda: now, trust_clock=True) as database:
        yield TestClient(Router(page_routes(database)), raise_server_exceptions=True)
