"""A random published file over several months, and rows around each change of its answers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from almanac.database import Database, open_database
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known

US = timedelta(microseconds=1)
DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 20, 6, tzinfo=UTC)
DAYS = 75
LAST = FIRST + DAYS * DAY
LATER = LAST + 20 * DAY
COINS = [f"coin-{number}" for number in range(8)]
QUIET, LATE = "quiet", "late"
"""A coin without events, and one that becomes known in the second month."""


class StepWorld:
    """A published file of a seed, and its history."""

    def __init__(self, file: Path, seed: int, events: int = 60, at: datetime = LAST) -> None:
        source = Random(seed)
        self.file = file
        self.pulls = [
            FIRST + number * DAY / 2
            for number in range(2 * DAYS)
            if number == 0 or source.random() < 0.6
        ]
        self.versions = [
            version for event in range(events) for version in self._history(source, event)
        ]
        self.absences = [
            absence for event in range(0, events, 3) for absence in self._gaps(source, event)
        ]
        named = [NamedCoin(coin, coin.upper(), coin) for coin in (*COINS, QUIET)]
        publish_by_hand(
            file,
            [version for version in self.versions if version.known_from <= at],
            pulls=[pull for pull in self.pulls if pull <= at],
            absences=[absence for absence in self.absences if absence.changed_at <= at],
            coins=named,
            at=at,
        )
        self._limit_pulls(source)

    def _history(self, source: Random, event: int) -> list[Known]:
        begins = FIRST + source.randrange(DAYS * 8) * DAY / 8
        found: list[Known] = []
        for version in range(1, source.randrange(1, 6)):
            hours = source.randrange(24 * 30)
            date = begins + source.choice([3, 7, 10, 20]) * DAY + source.randrange(9) * DAY / 8
            is_day = source.random() < 0.4
            coins = source.sample(COINS, source.randrange(3))
            if begins > FIRST + 35 * DAY and source.random() < 0.3:
                coins.append(LATE)
            found.append(
                Known(
                    event_id=f"event-{event:03}",
                    version=version,
                    known_from=begins,
                    date=date.replace(hour=0, minute=0) if is_day else date,
                    status="cancelled" if source.random() < 0.15 else "scheduled",
                    title=f"title {event} {version}",
                    categories=tuple(source.sample(["Fork", "Airdrop", "Listing"], 2)),
                    coins=tuple(coins),
                    impact=source.choice([None, 2.5, 8.0]),
                    impact_band=source.choice([None, "High"]),
                    is_estimated=source.random() < 0.1,
                )
            )
            begins += hours * DAY / 24
        return found

    def _gaps(self, source: Random, event: int) -> list[Absence]:
        at = FIRST + source.randrange(DAYS * 4) * DAY / 4
        name = f"event-{event:03}"
        return [Absence(name, at, at), Absence(name, at + source.randrange(1, 9) * DAY / 2, None)]

    def _limit_pulls(self, source: Random) -> None:
        """Make some pulls those of the plan Free, of some coins, or of a few days."""
        kinds = [source.choice(["", "", "free", "coins", "days"]) for _ in self.pulls]
        limited = pa.table(
            {"pulled_at": pa.array(self.pulls, pa.timestamp("us", "UTC")), "kind": kinds}
        )
        with duckdb.connect(self.file) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("limited", limited)
            connection.execute(
                """
                UPDATE batches SET
                    plan = if(kind = 'free', 'free', 'pro'),
                    coins = if(kind = 'coins', ['coin-1', 'coin-5'], NULL),
                    upper = if(kind = 'days', observed_at + INTERVAL 8 DAY, NULL)
                FROM limited WHERE observed_at = pulled_at
                """
            )
            connection.execute(
                """
                INSERT INTO coin_snapshots BY NAME
                SELECT
                    pulled_at::DATE AS observed_date, 'coin-' || number AS coin,
                    min(pulled_at) AS observed_at
                FROM limited, range(4) AS r(number)
                WHERE pulled_at IN (SELECT observed_at FROM coverage)
                GROUP BY ALL
                """
            )

    def open(self) -> Database:
        """Return the file as a database whose clock is after every row."""
        return open_database(self.file, clock=lambda: LATER, coins_are="slug")

    def known_coins(self) -> list[str]:
        with self.open() as database:
            found = database.sql("SELECT slug FROM coins UNION SELECT coin FROM event_coins")
            return sorted(str(row["slug"]) for row in found.rows())

    def make_rows(self, count: int, seed: int = 1, coins: Sequence[str] = ()) -> pa.Table:
        """Return rows at random times, and a microsecond around each change."""
        source, coins = Random(seed), coins or self.known_coins()
        edges = [*self.pulls, *(pull + 2 * DAY for pull in self.pulls)]
        edges += [absence.changed_at for absence in self.absences]
        edges += [version.known_from for version in self.versions]
        dates = [version.date for version in self.versions if version.date is not None]
        edges += [date + shift * DAY for date in dates for shift in (-7, 0, 1)]
        edges += [datetime(2026, month, 1, tzinfo=UTC) for month in (2, 3, 4)]
        edges = [edge for edge in edges if FIRST - DAY <= edge <= LATER - DAY]
        rows: list[dict[str, Any]] = []
        for number in range(count):
            if number % 2:
                at = source.choice(edges) + source.choice([-1, 0, 0, 1]) * US
            else:
                at = FIRST - DAY + source.randrange((LATER - FIRST) // US) * US
            rows.append({"number": number, "ts": at, "coin": source.choice(coins)})
        types = {"number": pa.int64(), "ts": pa.timestamp("us", "UTC"), "coin": pa.string()}
        return pa.Table.from_pylist(rows, pa.schema(types))
