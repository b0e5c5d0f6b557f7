"""Coins that leave and return: ranks and listings at any time, from the bodies that landed."""

import json
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import almanac
from tests.history.stories.handmade import HandmadeHome, at, coin
from warehouse.home import Home

MINUTE = timedelta(minutes=1)
SHOWN = "coin, rank, listed, missing_since"


def answer_from_landing(home: Home, times: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of `coins_as_of` at each time, from the landed lists of coins alone."""
    landing, pulls = home.landing, list[dict[str, Any]]()
    shown: list[tuple[int, str, int]] = []
    for batch_id in landing.batch_ids():
        manifest = landing.manifest(batch_id)
        if manifest.feed == "coins":
            names = ("observed_at", "plan")
            pull = {name: getattr(manifest, name) for name in names}
            pulls.append({"pull": len(pulls), "complete": manifest.complete, **pull})
            for _, body in landing.pages(manifest):
                rows = json.loads(body)["data"]
                shown += [(pulls[-1]["pull"], row["slug"], row["rank"]) for row in rows]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("pulls", pa.Table.from_pylist(pulls))
        columns = zip(("pull", "coin", "rank"), zip(*shown, strict=True), strict=True)
        connection.register("shown", pa.table({name: list(values) for name, values in columns}))
        connection.register("times", pa.table({"ts": list(times)}))
        return connection.sql(
            """
            WITH seen AS (
                SELECT s.*, p.observed_at, p.complete FROM shown AS s JOIN pulls AS p USING (pull)
            ),
            known AS (
                SELECT t.ts, s.coin, max(s.observed_at) AS seen_at
                FROM times AS t JOIN seen AS s ON s.observed_at <= t.ts
                GROUP BY ALL HAVING bool_or(s.complete)
            ),
            last AS (
                SELECT t.ts, max(p.observed_at) AS observed_at
                FROM times AS t JOIN pulls AS p ON p.observed_at <= t.ts
                WHERE p.complete
                GROUP BY ALL
            ),
            gone AS (
                SELECT k.ts, k.coin, min(p.observed_at) AS missing_since
                FROM known AS k JOIN pulls AS p
                    ON p.observed_at > k.seen_at AND p.observed_at <= k.ts
                WHERE p.complete AND p.plan <> 'free' GROUP BY ALL
            )
            SELECT
                k.ts, k.coin, s.rank,
                CASE WHEN s.coin IS NOT NULL THEN true WHEN g.coin IS NOT NULL THEN false END,
                g.missing_since
            FROM known AS k JOIN last AS l USING (ts)
            LEFT JOIN seen AS s ON s.coin = k.coin AND s.observed_at = l.observed_at
            LEFT JOIN gone AS g ON g.ts = k.ts AND g.coin = k.coin
            ORDER BY k.ts, k.coin
            """
        ).fetchall()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_any_time_has_the_last_complete_list(seed: int, story: HandmadeHome) -> None:
    """Random lists of few coins, some cut short and some on a plan that shows the top alone."""
    random = Random(seed)
    when = at("01 06:00")
    times = []
    for number in range(12):
        when += timedelta(hours=random.choice((1, 5, 23)))
        slugs = random.sample([f"coin-{each}" for each in range(9)], random.randint(1, 9))
        plan = random.choice(("elite", "elite", "free"))
        cut = None if number == 0 or random.random() < 0.7 else "cut short"
        ranked = [coin(slug, rank=place) for place, slug in enumerate(slugs, 1)]
        story.coins(f"{when:%Y-%m-%d %H:%M}", *ranked, plan=plan, why_incomplete=cut)
        times += [when, when + 59 * MINUTE] if number % 2 else [when]
        if number in (7, 8):
            story.merge()
    story.merge()
    expected = answer_from_landing(story.home, times)
    with almanac.open(story.home.root) as db:
        found = [
            (ts, *row.values())
            for ts in times
            for row in db.sql(f"SELECT {SHOWN} FROM coins_as_of($ts) ORDER BY coin", ts=ts).rows()
        ]
        assert found == expected
        assert {listed for *_, listed, _ in found} == {True, False, None}
        for ts in times[::3]:
            ranks = [(row[1], row[2]) for row in expected if row[0] == ts and row[3]]
            ranks.sort(key=lambda row: row[1])
            assert [(row["coin"], row["rank"]) for row in db.universe(ts)] == ranks
            assert [row["rank"] for row in db.universe(ts, top=2)] == [1, 2][: len(ranks)]
        current = {row["slug"]: (row["rank"], row["missing_since"]) for row in db.coins()}
        last = [row for row in expected if row[0] == times[-1]]
        assert {coin: (rank, missing) for _, coin, rank, _, missing in last} == current


def test_a_coin_that_left_has_no_rank_and_keeps_its_events(story: HandmadeHome) -> None:
    story.coins("01 06:00", coin("bitcoin", rank=1), coin("tron", rank=9))
    story.coins("02 06:00", coin("bitcoin", rank=1), coin("sui", rank=9))
    story.coins("03 06:00", coin("tron", rank=3), why_incomplete="cut short")
    story.coins("04 06:00", coin("bitcoin", rank=1), coin("tron", rank=9))
    story.merge()
    rows = f"SELECT {SHOWN} FROM coins_as_of('2026-03-%s') ORDER BY coin"
    gone, first = at("02 06:00"), ("bitcoin", 1, True, None)
    others: dict[str, list[tuple[Any, ...]]] = {
        "01 07:00": [("tron", 9, True, None)],
        "02 06:00": [("sui", 9, True, None), ("tron", None, False, gone)],
        # The incomplete pull says that it is listed, and no rank: it may be that of another coin.
        "03 06:00": [("sui", 9, True, None), ("tron", None, None, None)],
        "04 06:00": [("sui", None, False, at("04 06:00")), ("tron", 9, True, None)],
    }
    for day, rest in others.items():
        assert story.rows(rows % day) == [first, *rest], day


def test_an_older_or_empty_list_and_one_with_unknown_rows_prove_no_absence(
    story: HandmadeHome,
) -> None:
    story.coins("01 06:00", coin("bitcoin", rank=1), coin("tron", rank=2))
    story.coins("02 06:00", coin("sui", rank=1), true="01 05:00")
    story.coins("03 06:00")
    story.merge()
    rows = f"SELECT {SHOWN} FROM coins_as_of('2026-03-%s') ORDER BY coin"
    both = [("bitcoin", 1, True, None), ("tron", 2, True, None)]
    assert story.rows(rows % "03 06:00") == both
    # Of an unreadable row, the coin or its rank is not known.
    story.coins("04 06:00", coin("bitcoin", rank=2), coin("tron", rank="none"))
    story.coins("05 06:00", coin("tron", rank=2), {"rank": 1})
    story.merge()
    assert story.rows(rows % "04 06:00") == [("bitcoin", 2, True, None), ("tron", None, None, None)]
    assert story.rows(rows % "05 06:00") == [("bitcoin", None, None, None), ("tron", 2, True, None)]


def test_a_universe_needs_a_complete_pull_and_a_rank(story: HandmadeHome) -> None:
    story.coins("01 06:00", coin("bitcoin"), why_incomplete="cut short")
    story.coins("02 06:00", coin("bitcoin"), coin("tron", rank=None))
    story.merge()
    with almanac.open(story.home.root) as db:
        assert [row["coin"] for row in db.universe("2026-03-02 06:00")] == ["bitcoin", "tron"]
        with pytest.raises(almanac.QueryRefused, match="before the first"):
            db.universe("2026-03-02 05:00")
        for top in (0, True, "9"):
            with pytest.raises(almanac.InvalidArgument, match="top="):
                db.universe("2026-03-02 06:00", top=top)  # type: ignore[arg-type]
        first: Any = np.int64(1)
        assert [row["coin"] for row in db.universe("2026-03-02 06:00", first)] == ["bitcoin"]
        with pytest.raises(almanac.InvalidArgument, match="as_of=None"):
            db.universe(None)  # type: ignore[arg-type]
        with pytest.raises(almanac.QueryRefused, match="universe: top is 0; expected a rank"):
            db.sql("FROM universe('2026-03-02 06:00', top := 0)")
        with pytest.raises(almanac.InvalidArgument, match="expected coins, such as"):
            db.blackouts(as_of="each", min_impact=None, coins={"tron": "slug:bitcoin"})
        with pytest.raises(almanac.InvalidArgument, match="still to come"):
            db.universe("2999-01-01")
