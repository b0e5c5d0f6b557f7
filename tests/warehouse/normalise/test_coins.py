"""Lists of coins and of categories as typed rows."""

from typing import Any

from tests.warehouse.normalise.catalog_bodies import BatchReader, json_body, page


def coin(**changes: Any) -> dict[str, Any]:
    plain = {"slug": "btc", "symbol": "btc", "name": "Bitcoin", "rank": 1, "tracked": True}
    counters = {"upcomingCount": 3, "majorCount": 2, "peakImpact": 8.5}
    return plain | {"iconUrl": "https://example.org/b.png"} | counters | changes


def test_coins_are_typed(batches: BatchReader) -> None:
    batches.read("coins", page(coin(mood="x"), coin(slug="x", rank=None, peakImpact="7")))
    first, second = batches.seen("seen_coins")
    assert first == {
        "position": 0,
        "slug": "btc",
        "symbol": "btc",
        "name": "Bitcoin",
        "rank": 1,
        "tracked": True,
        "icon_url": "https://example.org/b.png",
        "upcoming_count": 3,
        "major_count": 2,
        "peak_impact": 8.5,
        "extra": '{"mood":"x"}',
    }
    assert (second["rank"], second["peak_impact"], second["extra"]) == (None, 7.0, None)


def test_the_counters_of_scores_are_hidden_where_the_plan_hides_them(batches: BatchReader) -> None:
    batches.read("coins", page(coin()), plan="standard")
    row = batches.only_row("seen_coins")
    assert (row["major_count"], row["peak_impact"], row["upcoming_count"]) == (None, None, 3)


def test_a_coin_that_cannot_be_read_is_rejected(batches: BatchReader) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"slug": None}, "slug: expected a text, but it is missing"),
        ({"rank": 1.5}, "rank: expected a whole number, got '1.5'"),
        ({"rank": 2**40}, "rank: expected a whole number"),
        ({"rank": "first"}, "rank: expected a number, got '\"first\"'"),
        ({"tracked": "maybe"}, "tracked: expected true or false"),
        ({"peakImpact": "nan"}, "peakImpact: expected a number"),
        ({"name": "a\0b"}, "a text contains the character NUL"),
        ({"symbol": []}, "symbol: expected a text, got '[]'"),
    ]
    read = batches.read("coins", page(*(coin(**changes) for changes, _ in bad), coin()))
    assert (read.good, read.rejected) == (1, len(bad))
    for (_, words, _), (_, reason) in zip(batches.rejected(), bad, strict=True):
        assert words.startswith(reason)


def test_categories_may_be_bare_with_numeric_ids_and_more_fields(batches: BatchReader) -> None:
    rows = [{"id": 1, "name": "A", "slug": "a"}, {"id": "b", "name": "B"}, {"name": "C"}]
    read = batches.read("categories", json_body(rows))
    assert batches.seen("seen_categories") == [
        {"position": 0, "id": "1", "name": "A", "extra": '{"slug":"a"}'},
        {"position": 1, "id": "b", "name": "B", "extra": None},
    ]
    assert (read.arrived, read.good, read.rejected) == (3, 2, 1)
