"""Exports of any size, one for each day, as a service would send them, written by DuckDB.

They depend on the arguments only. Each category also occurs alone, so that the first export shows
the separator of lists. Belongs here: making bodies. Does not: timing anything.
"""

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final

import duckdb

FIRST_DAY: Final = date(2026, 3, 1)

_EXPORT: Final = """
COPY (
    WITH chosen AS (
        SELECT
            k,
            -- The exports, up to this one, in which the date changed.
            list_filter(range(1, $number + 1), lambda d: hash(k, d) % 1000 < $changed_per_mille)
                AS changes,
            if(k < $events, 0, (k - $events) // greatest($inserted, 1) + 1) AS first,
            (hash(k, 'fate') % 1000)::INTEGER // greatest($gone_per_mille, 1) AS fate,
            (1 + hash(k, 'gone') % 90)::INTEGER AS gone
        FROM range($events + $number * $inserted) AS e(k)
    ),
    events AS (
        SELECT
            k,
            $first_day + to_days(if(first = 0, -(hash(k, 'when') % 3300)::INTEGER,
                                    (first - 1) * $every)::INTEGER) AS created,
            coalesce(list_last(changes), 0) AS changed,
            -- The date of each fourth event moves, and then moves back.
            hash(k, 'back') % 4 = 0 AND len(changes) % 2 = 0 AS is_back,
            hash(k, 'coin') % $coins AS coin,
            if(hash(k, 'two') % 2 = 0, hash(k, 'popular') % least($coins, 100), coin) AS popular
        FROM chosen
        -- Of the withdrawn events a third stays away, a third misses one export, a third three.
        WHERE first > 0 OR fate > 2 OR $gone_per_mille = 0 OR $number < gone
            OR $number >= gone + [1_000_000, 1, 3][fate + 1]
    ),
    dated AS (
        SELECT
            *,
            $first_day + to_days((changed * $every)::INTEGER) AS changed_on,
            -- A first date is at midnight, a later one at noon: no move leads to the date before.
            if(changed = 0 OR is_back, created + to_days((hash(k, 'lead') % 90)::INTEGER),
               changed_on + to_days((hash(k, 'lead') % 300)::INTEGER) + INTERVAL 12 HOUR)
                AS happens
        FROM events
    )
    SELECT
        'evt_' || left(md5(k::VARCHAR), 16) AS id,
        'event-' || k AS slug,
        'Mainnet upgrade number ' || k || ' of a network' AS title,
        repeat('Some words on what is going to happen and why. ', (1 + hash(k) % 6)::INTEGER) || k
            AS description,
        strftime(happens, '%d %b') AS "displayedDate",
        strftime(happens, '%Y-%m-%dT%H:%M:%SZ') AS "date",
        NULL AS "dateEnd",
        'date' AS "dateType",
        'false' AS "isEstimated",
        ['Upgrade', 'Listing', 'Airdrop', 'Burn', 'Meetup', 'Other']
            [(1 + hash(k, 'c') % 6)::INTEGER]
            || if(hash(k) % 3 = 0 AND hash(k, 'c') % 6 < 5, ';Other', '') AS categories,
        'coin-' || coin || if(popular <> coin, ';coin-' || popular, '') AS coins,
        round((hash(k, 'impact') % 1001) / 100.0, 2) AS impact,
        'What it may mean for the network, in a line: ' || k AS "impactSummary",
        'https://example.com/source/' || k AS "sourceUrl",
        'https://example.com/snapshot/' || k || '.png' AS "snapshotUrl",
        strftime(created, '%Y-%m-%dT10:00:00Z') AS "lastVerifiedAt",
        strftime(created, '%Y-%m-%dT09:00:00Z') AS "createdAt",
        strftime(if(changed = 0, created, changed_on - INTERVAL 1 DAY), '%Y-%m-%dT10:00:00Z')
            AS "updatedAt"
    FROM dated
) TO $file (HEADER, DELIMITER ',')
"""


def write_export(
    file: Path,
    *,
    events: int,
    number: int = 0,
    changed_per_mille: int = 7,
    gone_per_mille: int = 0,
    inserted: int = 0,
    coins: int = 17_000,
    first_day: date = FIRST_DAY,
    every: int = 1,
) -> None:
    """Write an export of so many events, the `number`th after the first; `every` so many days.

    In each export `changed_per_mille` events in a thousand have another date, and `inserted` are
    new. Within 90 exports three times `gone_per_mille` are withdrawn; two thirds of them return.
    """
    values = {
        "events": events,
        "number": number,
        "changed_per_mille": changed_per_mille,
        "gone_per_mille": gone_per_mille,
        "inserted": inserted,
        "coins": coins,
        "first_day": datetime.combine(first_day, time()),
        "every": every,
        "file": str(file),
    }
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(_EXPORT, values)


def known_at(number: int, *, first_day: date = FIRST_DAY, every: int = 1) -> datetime:
    """Return the time at which an export is pulled; its content is six hours older."""
    return datetime.combine(first_day, time(6, 5), UTC) + timedelta(days=number * every)
