"""The view of a past time: what the view in memory shows, from SQL."""

from pathlib import Path

from catalog.contract.plans import ENTERPRISE, plan_window
from pipeline.mirror.mirror_store import PublishedMemoryView
from pipeline.mirror.past_view import PastView
from pipeline.mirror.published_catalog import PublishedCatalog
from tests.history.stories.handmade import HandmadeHome, at, event


def test_counters_of_a_coin_without_a_score_are_numbers(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    coin = {"slug": "nevia", "symbol": "NEV", "name": "Nevia"}
    story.listed("01 09:00", event("a", impact=None, coins=[coin]), event("b", impact=8.0))
    story.merge()
    catalog, now = PublishedCatalog(story.home.warehouse), at("01 10:00")
    window = plan_window(ENTERPRISE, now)
    for slug, major in (("nevia", 0), ("bitcoin", 1), ("unknown", 0)):
        found = PastView(catalog, now).counters(slug, window, coverage_top=None)
        assert found.major == major
        assert found == PublishedMemoryView(catalog, now).counters(slug, window, coverage_top=None)


def test_cancellations_since_a_time_include_those_that_became_known_since(tmp_path: Path) -> None:
    """A cancellation of 10:00 is known from a pull at 20:00; a client requests since 15:00."""
    story = HandmadeHome(tmp_path)
    story.listed("01 09:00", event("a"), event("b"), event("c"))
    story.cancellations("01 11:00", a="2026-03-01T09:30:00Z")
    late = {name: "2026-03-01T10:00:00Z" for name in ("b", "c", "unseen")}
    story.cancellations("01 20:00", d="2026-03-01T19:00:00Z", **late)
    story.merge()
    catalog = PublishedCatalog(story.home.warehouse)
    for make in (PastView, PublishedMemoryView):
        view = make(catalog, at("01 20:00"))
        since, expected = at("01 15:00"), ["b", "c", "unseen", "d"]
        found, after = list[str](), None
        while page := view.cancellations(since=since, after=after, limit=3):
            assert page.total == 4
            found += [entry.id for entry in page.entries]
            last = page.entries[-1]
            after = last.cancelled_at.timestamp(), last.id
            if not page.more:
                break
        assert found == expected
        assert view.cancellations(since=at("01 20:01"), after=None, limit=9).total == 0
        earlier = make(catalog, at("01 19:00")).cancellations(since=since, after=None, limit=9)
        assert earlier.total == 0
