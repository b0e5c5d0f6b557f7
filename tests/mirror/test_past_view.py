"""The view of a past time: what the view in memory shows, from SQL."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from catalog.contract.plans import ENTERPRISE, plan_window
from catalog.server.store import EventQuery
from pipeline.mirror.mirror_store import PublishedMemoryView
from pipeline.mirror.past_view import PastView, PastViews
from pipeline.mirror.published_catalog import PublishedCatalog
from tests.history.stories.handmade import HandmadeHome, at, coin, event


def test_counters_of_a_coin_without_a_score_are_numbers(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    nevia = {"slug": "nevia", "symbol": "NEV", "name": "Nevia"}
    story.listed("01 09:00", event("a", impact=None, coins=[nevia]), event("b", impact=8.0))
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


def test_a_keyword_finds_the_same_events_in_memory_and_by_sql(tmp_path: Path) -> None:
    titles = (
        "Große Straße",
        "GROSSE STRASSE",
        "ΣΊΣΥΦΟΣ σίσυφος",
        "İstanbul",
        "ﬁnal ﬁx",
        "ſtart",
        "K",
    )
    story = HandmadeHome(tmp_path)
    events = [event(f"e{n}", title=title, description=None) for n, title in enumerate(titles)]
    described = event("d", title="plain", description="Die Größe – 100 % GRÖSSER")
    story.listed("01 09:00", *events, described, event("n", title="plain", description=None))
    story.merge()
    catalog, now = PublishedCatalog(story.home.warehouse), at("01 10:00")
    window = plan_window(ENTERPRISE, now)
    keywords = (
        *("ss", "ß", "straße", "STRASSE", "ς", "Σ", "ΣΥΦΟΣ", "i", "İ", "fi", "ﬁ", "s", "ſ", "k"),
        *("größe", "GRÖSSE", "%", "_", "100 %", "plain", "", "nothing"),
    )
    found = 0
    for keyword in filter(None, keywords):
        for in_description in (True, False):
            query = EventQuery(
                window, keyword=keyword.casefold(), keyword_in_description=in_description
            )
            by_sql, in_memory = (
                make(catalog, now).events(query, after=None, limit=50)
                for make in (PastView, PublishedMemoryView)
            )
            assert [*by_sql.events] == [*in_memory.events], keyword
            assert by_sql.total == in_memory.total
            found += by_sql.total
    assert found > 40


def test_threads_that_read_different_times_do_not_disturb_each_other(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    days = [f"{day:02}" for day in range(1, 19)]
    for day in days:
        story.listed(f"{day} 09:00", event("a", title=f"Title of day {day}"))
    story.merge()
    views = PastViews(PublishedCatalog(story.home.warehouse))

    def read(day: str) -> str:
        event_then = views.at(at(f"{day} 10:00")).event("a")
        return "" if event_then is None else event_then.title

    # More times than views are kept.
    wanted = days * 5
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, wanted)) == [f"Title of day {day}" for day in wanted]


def test_a_view_is_the_same_until_something_became_known(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)
    story.listed("01 09:00", event("a"))
    story.coins("02 09:00", coin("bitcoin", rank=7))
    story.listed("03 09:00", event("a", title="Second"))
    story.merge()
    catalog = PublishedCatalog(story.home.warehouse)
    views = PastViews(catalog)
    assert views.at(at("01 09:00")) is views.at(at("02 08:59"))
    assert views.at(at("02 08:59")) is not views.at(at("02 09:00"))
    assert views.at(at("02 09:00")) is views.at(at("03 08:00"))
    # The book of coins is read again only if the coins changed.
    assert catalog.coins(at("02 09:00")) is catalog.coins(at("04 09:00"))
    ranks = [catalog.coins(at(text)).coins[0].rank for text in ("01 10:00", "02 10:00")]
    assert ranks == [None, 7]
