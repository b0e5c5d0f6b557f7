"""How long dates hold: each end of a life by hand, and the estimate beside that of scipy."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

import almanac
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Absence, Handmade, Known

SEEN = datetime(2026, 3, 2, 6, tzinfo=UTC)
MIDNIGHT = SEEN.replace(hour=0)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DATE = datetime(2026, 3, 12, tzinfo=UTC)
LAST_PULL = SEEN + 40 * DAY
MONTH = {"date": datetime(2026, 3, 31, 23, tzinfo=UTC), "date_type": "month", "is_estimated": True}
HELD, OVER = (0, 40.0), (0, 10.75)
SECOND = 1 / 86_400
LIVES: dict[str, tuple[list[tuple[float, dict[str, Any]]], tuple[int, float] | None]] = {
    # Versions by age, and whether the date was left, and the age at the end.
    "happened": ([(0, {})], OVER),
    "far away": ([(0, {"date": DATE + 60 * DAY})], HELD),
    "slipped": ([(0, {}), (2, {"date": DATE + DAY})], (1, 2.0)),
    "pulled in": ([(0, {}), (2, {"date": DATE - DAY})], (1, 2.0)),
    "loosened": ([(0, {}), (2, MONTH)], (1, 2.0)),
    "cancelled": ([(0, {}), (2, {"status": "cancelled"})], (1, 2.0)),
    "withdrawn": ([(0, {}), (2, {"status": "withdrawn"})], (1, 2.0)),
    "back": ([(0, {}), (2, {"date": DATE + DAY}), (3, {})], (1, 2.0)),
    "longer": ([(0, {}), (2, {"date_end": DATE + 20 * DAY})], OVER),
    "revised": ([(0, {}), (2, {"title": "other"})], OVER),
    "refined": ([(0, {}), (2, {"date": DATE + DAY / 2})], (0, 10.25 + SECOND)),
    "within its month": ([(0, MONTH), (2, {}), (3, {"date": DATE + DAY})], (0, 11.75)),
    "beyond its month": ([(0, MONTH), (2, {}), (3, {"date": DATE + 30 * DAY})], (1, 3.0)),
    "moved when it was over": ([(0, {}), (11, {"date": DATE + 9 * DAY})], OVER),
    "missing": ([(0, {})], (0, 4.0)),
    "missing for a day": ([(0, {})], OVER),
    "missing, then cancelled": ([(0, {}), (6, {"status": "cancelled"})], (1, 6.0)),
    "replaced": ([(0, {"date": DATE - DAY}), (0, {})], OVER),
    "entered late": ([(6, {"change_kinds": (), "created_at": SEEN, "updated_at": SEEN})], OVER),
    "over at first": ([(11, {})], None),
    "revealed": ([(0, {"change_kinds": ("revealed",)})], None),
    "updated before": (
        [(6, {"change_kinds": (), "created_at": SEEN, "updated_at": SEEN + DAY})],
        None,
    ),
    "cancelled at first": ([(0, {"status": "cancelled"})], None),
    "hidden date": ([(0, {"unknown_fields": ("date_type",)})], None),
    "without a date": ([(0, {"date": None}), (2, {})], None),
}


@pytest.fixture(scope="module")
def lives() -> Handmade:
    versions = [
        Known(
            event_id=name,
            version=number,
            known_from=SEEN + age * DAY,
            categories=(name,),
            **{"date": DATE, "change_kinds": ("created",), **fields},
        )
        for name, (rows, _) in LIVES.items()
        for number, (age, fields) in enumerate(rows, start=1)
    ]
    absences = [Absence(name, SEEN + 4 * DAY, SEEN + 4 * DAY) for name in LIVES if "miss" in name]
    absences.append(Absence("missing for a day", SEEN + 5 * DAY, None))
    pulls = [SEEN + day * DAY for day in range(41)]
    return Handmade(versions, absences=absences, pulls=pulls, zone="Asia/Kolkata")


def test_a_life_ends_when_the_date_is_left_over_or_no_longer_watched(lives: Handmade) -> None:
    ages = sorted({age for _, life in LIVES.values() if life for age in (life[1], life[1] + 1e-6)})
    rows = lives.rows(
        "SELECT category, after_days, left_date, at_risk FROM date_survival($at, $ages) "
        "WHERE date_precision IS NULL AND category IS NOT NULL",
        {"at": LAST_PULL, "ages": ages},
    )
    found = {(name, age): numbers for name, age, *numbers in rows}
    watched = {name: life for name, (_, life) in LIVES.items() if life}
    assert {name for name, _ in found} == watched.keys()
    for name, (left, end) in watched.items():
        assert (found[name, end], found[name, end + 1e-6]) == ([left, 1], [left, 0]), name


def test_the_method_gives_the_rows_of_the_macro(tmp_path: Path) -> None:
    versions = [
        Known(
            event_id=str(place),
            known_from=SEEN,
            change_kinds=("created",),
            date=DATE,
            categories=("AMA",),
        )
        for place in range(4)
    ]
    versions.append(replace(versions[0], version=2, known_from=SEEN + 3 * DAY, status="cancelled"))
    file = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=[SEEN, LAST_PULL])
    with almanac.open(file, clock=lambda: LAST_PULL) as db:
        rows = db.date_survival(days=[7, 7]).rows()
        assert [(row["category"], row["date_precision"]) for row in rows] == [
            *((None, None), (None, "day"), ("AMA", None), ("AMA", "day"))
        ]
        assert {(row["left_date"], row["at_risk"], row["share"]) for row in rows} == {(1, 3, 0.75)}
        assert rows == db.sql("FROM date_survival(now(), 7) ORDER BY ALL NULLS FIRST").rows()
        # After the first pull nothing was watched yet.
        assert db.date_survival(SEEN + 2 * DAY).rows() == []


def test_what_became_known_later_changes_no_answer(lives: Handmade) -> None:
    for days in (3, 5.5, 12):
        asked: tuple[str, Any] = (
            "FROM date_survival($at, [1, 2, 5, 11]) ORDER BY ALL",
            {"at": SEEN + days * DAY},
        )
        later = lives.at(LAST_PULL).rows(*asked)
        assert later and later == lives.at(SEEN + days * DAY).rows(*asked), days
    lives.at(LAST_PULL)


def test_a_share_is_unknown_after_an_age_at_which_nothing_was_watched(lives: Handmade) -> None:
    shares = lives.rows(
        "SELECT category, share FROM date_survival($at, 11) WHERE date_precision IS NULL "
        "AND category IN ('happened', 'entered late', 'far away', 'slipped') ORDER BY ALL",
        {"at": LAST_PULL},
    )
    # All that left their date stay away from it.
    assert shares == [("entered late", None), ("far away", 1), ("happened", None), ("slipped", 0)]


COHORTS = 20
AGES = [1, 7, 30, 90]


@dataclass(frozen=True, slots=True)
class Lives:
    """Lives of a cohort: the ages at which they are watched from and to, and how they ended."""

    entry: Any
    end: Any
    has_left: Any

    def estimate(self, age: float) -> float:
        """Return the product-limit estimate, with late entry."""
        kept = 1.0
        for moment in np.unique(self.end[self.has_left & (self.end <= age)]):
            at_risk = ((self.entry < moment) & (self.end >= moment)).sum()
            kept *= 1 - (self.has_left & (self.end == moment)).sum() / at_risk
        return kept


@pytest.fixture(scope="module")
def drawn() -> tuple[Handmade, list[Lives]]:
    """Cohorts, each of a category; a third of the events of each second one was announced before
    the first pull. Days are coarse, so that ends coincide."""
    random = np.random.default_rng(48)
    versions, cohorts = [], []
    pull = 24 * 100
    for cohort in range(COHORTS):
        count = int(random.integers(8, 80))
        seen = 6 + 24 * random.integers(0, 40, count)
        over = 24 * (seen // 24 + random.integers(1, 110, count))
        moved = seen + 24 * random.integers(1, 200, count)
        is_early = (random.random(count) < 0.34) & (cohort % 2 == 1)
        since = seen - np.where(is_early, 24 * random.integers(1, 60, count), 0)
        end = np.minimum(np.minimum(over, moved), pull)
        cohorts.append(Lives((seen - since) / 24, (end - since) / 24, end == moved))
        for place, hour in enumerate(seen):
            name, begin = f"{cohort} {place}", MIDNIGHT + int(since[place]) * HOUR
            fields: dict[str, Any] = {
                "event_id": name,
                "categories": (str(cohort),),
                "change_kinds": () if is_early[place] else ("created",),
                "created_at": begin,
                "updated_at": begin,
            }
            date = MIDNIGHT + (int(over[place]) - 24) * HOUR
            at = MIDNIGHT + int(hour) * HOUR
            versions.append(Known(known_from=at, date=date, **fields))
            at = MIDNIGHT + int(moved[place]) * HOUR
            versions.append(Known(known_from=at, version=2, date=date + DAY, **fields))
    pulls = [MIDNIGHT + 6 * HOUR, MIDNIGHT + pull * HOUR]
    return Handmade(versions, pulls=pulls), cohorts


@pytest.mark.filterwarnings("ignore:The confidence interval is undefined")
def test_shares_are_those_of_the_product_limit_estimate(
    drawn: tuple[Handmade, list[Lives]],
) -> None:
    """Without late entry also those of scipy, with their intervals."""
    warehouse, cohorts = drawn
    rows = warehouse.rows(
        "SELECT category::INTEGER, events, after_days, left_date, at_risk, share, low, high "
        "FROM date_survival($at, $ages) WHERE date_precision = 'day' AND category IS NOT NULL",
        {"at": MIDNIGHT + 24 * 100 * HOUR, "ages": AGES},
    )
    assert len(rows) == COHORTS * len(AGES)
    known = 0
    for number, events, age, left, at_risk, share, low, high in rows:
        lives = cohorts[number]
        assert events == len(lives.end)
        assert left == (lives.has_left & (lives.end <= age)).sum()
        assert at_risk == ((lives.entry < age) & (lives.end >= age)).sum()
        if share is None:
            continue
        known += 1
        assert abs(share - lives.estimate(age)) < 1e-12
        if lives.entry.any():
            continue
        survival = stats.ecdf(
            stats.CensoredData(
                uncensored=lives.end[lives.has_left], right=lives.end[~lives.has_left]
            )
        ).sf
        assert abs(share - survival.evaluate(age)) < 1e-12
        if low is not None:
            interval = survival.confidence_interval(method="log-log")
            assert abs(low - interval.low.evaluate(age)) < 1e-12
            assert abs(high - interval.high.evaluate(age)) < 1e-12
    assert known > 0.8 * len(rows)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("'2026-03-02 05:59:59'", "2026-03-02 05:59:59 is before the first observation"),
        ("'2100-01-01'", "2100-01-01 is still to come"),
        ("NULL", "the timestamp is NULL"),
        ("'2026-03-05', []", r"days is \[\]; expected numbers above 0"),
        ("'2026-03-05', days := [7, 0]", r"days is \[7, 0\]"),
        ("'2026-03-05', [7, NULL]", r"days is \[7, NULL\]"),
        ("'2026-03-05', 'soon'", "days is soon"),
    ],
)
def test_what_can_not_be_answered_is_an_error_whatever_is_asked_of_the_rows(
    lives: Handmade, call: str, why: str
) -> None:
    for sql in (
        "SELECT count(*) FROM date_survival({})",
        "SELECT 1 FROM date_survival({}) LIMIT 1",
        "FROM date_survival({}) WHERE category = 'x' AND date_precision = 'y' AND after_days = 7",
        "SELECT 1 WHERE EXISTS (FROM date_survival({}))",
    ):
        with pytest.raises(duckdb.Error, match=f"date_survival: {why}"):
            lives.rows(sql.format(call))
