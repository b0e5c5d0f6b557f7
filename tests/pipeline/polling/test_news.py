"""News: which landed batches a merge is requested for, and which wait for the daily pull."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouse.history.change_log import ChangeLog
from warehouse.news import find_batches_with_news

from tests.pipeline.small_home import NOW, SmallHome
from tests.warehouse.normalise.catalog_bodies import json_event, page
from warehouse.history.merge import merge
from warehouse.landing.batches import Feed

MINUTE = timedelta(minutes=1)
CANCELLED: dict[str, Any] = {
    "id": "e9",
    "slug": "unknown-event",
    "title": "Unknown event",
    "cancelledAt": "2026-03-02T10:00:00Z",
}


class HomeWithNews:
    """A home with one merged list of events."""

    def __init__(self, root: Path) -> None:
        self.small = SmallHome(root)
        self.land(page(json_event()))
        merge(self.small.home)

    def land(self, body: bytes, *, minutes: int = 0, feed: Feed = "events") -> str:
        (landed,) = self.small.land(feed, at=NOW + minutes * MINUTE, body=body)
        return landed.batch_id

    def is_news(self, batch: str) -> bool:
        return batch in find_batches_with_news(self.small.home, [batch])


@pytest.fixture
def home(tmp_path: Path) -> HomeWithNews:
    return HomeWithNews(tmp_path / "home")


def test_the_same_list_again_is_no_news_and_another_title_is(home: HomeWithNews) -> None:
    assert not home.is_news(home.land(page(json_event()), minutes=1))
    changed = json_event(title="Mainnet, at last", updatedAt="2026-03-02T11:00:00Z")
    assert home.is_news(home.land(page(changed), minutes=2))


def test_a_cancellation_of_an_event_that_is_not_known_yet_is_news(home: HomeWithNews) -> None:
    assert not home.is_news(home.land(page(), minutes=1, feed="cancellations"))
    assert home.is_news(home.land(page(CANCELLED), minutes=2, feed="cancellations"))


def test_an_event_that_is_missing_from_every_poll_is_news_once(home: HomeWithNews) -> None:
    other = json_event(id="e2", slug="other-event")
    home.land(page(json_event(), other), minutes=1)
    merge(home.small.home)
    assert home.is_news(home.land(page(json_event()), minutes=2))
    merge(home.small.home)
    assert not home.is_news(home.land(page(json_event()), minutes=3))


def test_a_row_that_every_poll_rejects_is_news_once_a_day(home: HomeWithNews) -> None:
    rejected = page(json_event(), json_event(id="e3", slug="", date="no date"))
    assert home.is_news(home.land(rejected, minutes=1))
    merge(home.small.home)
    assert not home.is_news(home.land(rejected, minutes=2))


def test_a_list_that_was_pulled_before_what_is_merged_is_news(home: HomeWithNews) -> None:
    assert home.is_news(home.land(page(json_event()), minutes=-30)), "its day is folded again"


def test_a_list_that_cannot_be_compared_is_news(home: HomeWithNews) -> None:
    (day,) = ChangeLog.of(home.small.home).days()
    assert day.head.checkpoint is not None
    batch = home.land(page(json_event()), minutes=1)
    assert not home.is_news(batch)
    for path in (home.small.home.root / "lake/checkpoints").rglob("*.parquet"):
        path.write_bytes(b"damaged")
    assert home.is_news(batch)
