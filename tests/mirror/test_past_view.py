"""The view of a past time: what the view in memory shows, from SQL."""

from pathlib import Path

from catalog.contract.plans import ENTERPRISE, plan_window
from pipeline.mirror.mirror_store import memory_view
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
        assert found == memory_view(catalog, now).counters(slug, window, coverage_top=None)
