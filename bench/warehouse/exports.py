"""Exports of any size, one for each day, as a service would send them, written by DuckDB.

They depend on the arguments only. Each category also occurs alone, so that the first export shows
the separator of lists. Belongs here: making bodies. Does not: timing anything.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb

FIRST_DAY: Final = datetime(2026, 3, 1, 0, 5, tzinfo=UTC)

_EXPORT: Final = """
COPY (
    WITH events AS (
        SELECT
            k,
            (hash(k, 'when') % 3800)::BIGINT AS place,
            -- The last day, up to this one, on which it changed; 0 is never.
            (SELECT coalesce(max(d), 0) FROM range(1, $day + 1) AS days(d)
             WHERE hash(k, d) % 1000 < $changed_per_mille) AS changed
        FROM range($events) AS e(k)
    ),
    dated AS (
        SELECT *, TIMESTAMP '2017-01-01' + to_days((place + 60 + changed)::INTEGER) AS happens
        FROM events
    )
    SELECT
        'evt_' || left(md5(k::VARCHAR), 16) AS id,
        'event-' || k AS slug,
        'Mainnet upgrade number ' || k || ' of a network' AS title,
        repeat('Some words on what is going to happen and why. ', (1 + hash(k) % 6)::INTEGER) || k
            AS description,
        strftime(happens, '%d %b') AS "displayedDate",
        strftime(happens, '%Y-%m-%dT00:00:00Z') AS "date",
        NULL AS "dateEnd",
        'date' AS "dateType",
        'false' AS "isEstimated",
        ['Upgrade', 'Listing', 'Airdrop', 'Burn', 'Meetup', 'Other']
            [(1 + hash(k, 'c') % 6)::INTEGER]
            || if(hash(k) % 3 = 0, ';Other', '') AS categories,
        'coin-' || (hash(k, 'coin') % 17000)
            || if(hash(k, 'x') % 4 = 0, ';coin-' || (hash(k, 'y') % 17000), '') AS coins,
        round((hash(k, 'impact') % 1001) / 100.0, 2) AS impact,
        'What it may mean for the network, in a line: ' || k AS "impactSummary",
        'https://example.com/source/' || k AS "sourceUrl",
        'https://example.com/snapshot/' || k || '.png' AS "snapshotUrl",
        strftime(TIMESTAMP '2017-01-01' + to_days(place::INTEGER + 40), '%Y-%m-%dT10:00:00Z')
            AS "lastVerifiedAt",
        strftime(TIMESTAMP '2017-01-01' + to_days(place::INTEGER), '%Y-%m-%dT09:00:00Z')
            AS "createdAt",
        strftime(if(changed > 0, TIMESTAMP '2026-03-01' + to_days(changed::INTEGER - 1),
                    TIMESTAMP '2017-01-01' + to_days(place::INTEGER + 20)),
                 '%Y-%m-%dT10:00:00Z') AS "updatedAt"
    FROM dated
) TO $file (HEADER, DELIMITER ',')
"""


def write_export(file: Path, *, events: int, day: int = 0, changed_per_mille: int = 7) -> None:
    """Write the export of `day` days after the first: a CSV of `events` rows.

    On each day `changed_per_mille` events in a thousand get another date.
    """
    values = {
        "events": events,
        "day": day,
        "changed_per_mille": changed_per_mille,
        "file": str(file),
    }
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(_EXPORT, values)


def content_at(day: int) -> datetime:
    """Return the content time of the export of a day."""
    return FIRST_DAY + timedelta(days=day)
