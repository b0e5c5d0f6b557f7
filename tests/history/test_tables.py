"""What a merge writes to the tables beside events and versions, and the views over them."""

from datetime import date

from tests.history.stories.handmade import HandmadeHome, at, coin, event
from warehouse.schema.columns import NAMES


def test_names_of_coins_come_from_the_coins_and_else_from_events(story: HandmadeHome) -> None:
    names = "SELECT coin, symbol, name FROM event_coins ORDER BY coin"
    linked = [
        {"slug": "bitcoin", "symbol": "B", "name": "Of an event"},
        {"slug": "tron", "symbol": "TRX", "name": "Tron"},
    ]
    story.listed("01 06:00", event("a", coins=linked))
    story.coins("01 07:00", coin("bitcoin"))
    story.merge()
    assert story.rows(names) == [("bitcoin", "bit", "Bitcoin"), ("tron", "TRX", "Tron")]
    story.coins("02 07:00", coin("bitcoin", name="Renamed"))
    story.merge()
    assert story.rows(names)[0] == ("bitcoin", "bit", "Renamed")


def test_categories_of_events_find_their_id_by_name_in_any_case(story: HandmadeHome) -> None:
    story.categories("01 05:00", c7="LISTING")
    story.listed("01 06:00", event("a", categories=["Listing", "Other"]))
    story.merge()
    ids = story.rows("SELECT category, category_id FROM event_categories ORDER BY category")
    assert ids == [("Listing", "7"), ("Other", None)]


def test_a_batch_has_its_counts_its_rejects_and_its_coverage(story: HandmadeHome) -> None:
    story.listed("01 06:00", event("a"), event("b", date="soon"))
    story.listed("01 07:00", event("a"), why_incomplete="cut short")
    story.merge()
    counts = "observed_date, observed_at, arrived, good, rejected, versions, complete, lower"
    lower, day = at("2017-01-01 00:00"), date(2026, 3, 1)
    assert story.rows(f"SELECT {counts} FROM batches ORDER BY observed_at") == [
        (day, at("01 06:00"), 2, 1, 1, 1, True, lower),
        (day, at("01 07:00"), 1, 1, 0, 0, False, lower),
    ]
    ((observed, position, reason),) = story.rows(
        "SELECT observed_date, position, reason FROM rejects"
    )
    assert (observed, position) == (day, 1)
    assert "date: expected an instant" in reason
    coverage = "SELECT feed, plan, rows, lower, observed_at FROM coverage"
    assert story.rows(coverage) == [("events", "elite", 2, lower, at("01 06:00"))]


def test_coins_have_a_snapshot_of_each_complete_pull(story: HandmadeHome) -> None:
    story.coins("01 06:00", coin("bitcoin", rank=1), coin("tron", rank=2))
    story.coins("01 12:00", coin("bitcoin", rank=2), coin("sui"), why_incomplete="cut short")
    story.merge()
    ranks = [("bitcoin", 1), ("sui", None), ("tron", 2)]
    assert story.rows("SELECT slug, rank FROM coins ORDER BY ALL") == ranks
    story.coins("01 18:00", coin("bitcoin", rank=4), coin("tron", rank=5))
    story.merge()
    snapshots = "SELECT observed_at, coin, rank FROM coin_snapshots ORDER BY ALL"
    first, second = at("01 06:00"), at("01 18:00")
    assert story.rows(snapshots) == [
        *((first, "bitcoin", 1), (first, "tron", 2)),
        *((second, "bitcoin", 4), (second, "tron", 5)),
    ]


def test_unknown_fields_are_named_in_the_order_of_the_fields(story: HandmadeHome) -> None:
    hidden = ("impact", "sourceUrl", "description")
    story.listed("01 06:00", event("a", **dict.fromkeys(hidden, ...)))
    story.merge()
    ((unknown,),) = story.rows("SELECT unknown_fields FROM events")
    assert {"description", "impact", "source_url"} <= {*unknown}
    assert unknown == sorted(unknown, key=NAMES.index)
