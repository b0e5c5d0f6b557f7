"""Published warehouse files whose versions are made by hand, in a tenth of a second.

    publish_by_hand(path, [Known("evt_1", known_from=…, coins=("bitcoin",)), …], pulls=[…])

The tables are filled by hand; macros and views are those of a publication. Belongs here: writing
such a file, replacing it by a newer one. Does not: how a merge fills the tables (tests/history).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from almanac.core.statements import expand
from tests.warehouse.answers.handmade import PUBLISHED, Absence, Handmade, Known
from warehouse.history.warehouse_file import open_next_file
from warehouse.home import Home
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import EVENT_VERSIONS, EVENTS, INTERNAL, TABLES
from warehouse.schema.views import EVENT_CLAIMS

_BASES = {"event_versions": "observed", "event_claims": "claimed"}
_ENDED = """
    INSERT INTO published.state.ended_versions BY NAME
    SELECT * FROM ({source}) WHERE known_to IS NOT NULL
"""
_CURRENT = """
    INSERT INTO published.state.current_versions BY NAME
    SELECT
        v.* EXCLUDE (known_to, known_basis, unknown_fields), v.content_at AS version_content_at,
        v.unknown_fields AS version_unknown_fields, v.extra AS version_extra,
        {each uncompared: v.@name AS version_@name},
        list_sum([
            {each fields: if(list_contains(v.unknown_fields, '@name'), 0, @bit)}
        ])::BIGINT AS known,
        e.last_seen_at, e.missing_since
    FROM ({source}) AS v
    JOIN memory.events AS e ON e.event_id = v.event_id
    WHERE v.known_to IS NULL
"""


class NamedCoin(NamedTuple):
    slug: str
    symbol: str
    name: str
    rank: int | None = None


def publish_by_hand(
    path: Path,
    versions: Sequence[Known],
    *,
    pulls: Sequence[datetime],
    at: datetime | None = None,
    claims: Sequence[Known] = (),
    absences: Iterable[Absence] = (),
    coins: Sequence[NamedCoin] = (),
    removed: Sequence[tuple[str, datetime]] = (),
    ranked: Mapping[datetime, Mapping[str, int | None]] | None = None,
) -> Path:
    """Write what was published by an instant, by default by the last version or pull.

    A pull is of every event date. `removed` are events and times of versions that a refold removed;
    `ranked` are the ranks of each pull of coins. The order of publication is the order of
    knowledge. A file at the path is replaced by a rename.
    """
    made = Handmade(versions, claims=claims, absences=absences, pulls=pulls)
    if at is not None:
        made.at(at)
    connection = made.connection
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    staged.write_bytes(_declared())
    connection.execute(ddl.attach(staged, "published", read_only=False))
    connection.execute("USE published")
    for table in (*TABLES, EVENT_CLAIMS, *INTERNAL):
        source = f"SELECT * FROM memory.{table.qualified}"
        if table.name in _BASES:
            basis = f"'{_BASES[table.name]}' AS known_basis"
            ends = ", coalesce(known_to, (SELECT min(v.known_from) FROM event_versions AS v "
            ends += "WHERE v.event_id = given.event_id)) AS known_to, NULL AS first_seen_at"
            place = ", row_number() OVER (ORDER BY known_from, event_id, version) AS published_seq"
            replaced = basis + (ends if table.name == "event_claims" else place)
            source = f"SELECT * REPLACE ({replaced}) FROM ({source}) AS given"
        if table is EVENT_VERSIONS:
            connection.execute(_ENDED.replace("{source}", source))
            connection.execute(expand(_CURRENT, GROUPS).replace("{source}", source))
        elif {table.name, table.qualified} & PUBLISHED.keys() and table is not EVENTS:
            connection.execute(f"INSERT INTO {table.qualified} BY NAME {source}")
    _fill_coins(made, coins, ranked)
    for event_id, known_from in removed:
        connection.execute(
            "INSERT INTO published.state.removed_versions VALUES ($event_id, $known_from, 0)",
            {"event_id": event_id, "known_from": known_from},
        )
    known = [at] if at else [*pulls, *(version.known_from for version in versions)]
    facts = {"publication": sha256(repr(versions).encode()).hexdigest()[:32]}
    facts["feed_id"] = "by hand"
    facts["published_at"] = max(known).isoformat()
    connection.execute(
        "INSERT INTO published._almanac.facts BY NAME "
        "SELECT unnest($names) AS name, unnest($texts) AS value",
        {"names": list(facts), "texts": list(facts.values())},
    )
    connection.execute("USE memory")
    connection.execute("DETACH published")
    made.close()
    return staged.rename(path)


def publish_two_events(home: Path) -> Path:
    """Publish `evt_0` of two coins and `evt_1` of one, first seen on 1 March 2026."""
    seen = {"known_from": datetime(2026, 3, 1, 6, tzinfo=UTC), "impact": 5.0}
    versions = [
        Known(event_id="evt_0", coins=("coin-0", "coin-5"), **seen),
        Known(event_id="evt_1", coins=("coin-1",), **seen),
    ]
    coins = [NamedCoin(f"coin-{number}", f"C{number}", f"Coin {number}") for number in range(3)]
    pulls = [seen["known_from"]]
    return publish_by_hand(home / "warehouse.duckdb", versions, pulls=pulls, coins=coins)


@cache
def _declared() -> bytes:
    """Return a file with all declarations and no rows: making them takes longer than filling it."""
    with TemporaryDirectory() as folder, open_next_file(Home(Path(folder)), None) as file:
        # The claims of a test do not follow from its versions.
        file.connection.execute("DROP VIEW event_claims")
        file.connection.execute(ddl.create(EVENT_CLAIMS))
        file.connection.execute("COMMENT ON TABLE event_claims IS 'claims by hand'")
        file.checkpoint()
        return file.path.read_bytes()


def _fill_coins(
    made: Handmade,
    coins: Sequence[NamedCoin],
    ranked: Mapping[datetime, Mapping[str, int | None]] | None,
) -> None:
    """Fill the coins; a coin of events that is not one of them has its slug as its names."""
    made.connection.execute(
        "INSERT INTO published.main.coins BY NAME SELECT unnest($slug::VARCHAR[]) AS slug, "
        "unnest($symbol::VARCHAR[]) AS symbol, unnest($name::VARCHAR[]) AS name, "
        "unnest($rank::INTEGER[]) AS rank",
        {key: [getattr(coin, key) for coin in coins] for key in NamedCoin._fields},
    )
    for seen_at, ranks in (ranked or {}).items():
        made.connection.execute(
            "INSERT INTO published.main.coin_snapshots BY NAME SELECT unnest($coin) AS coin, "
            "unnest($rank) AS rank, $at::TIMESTAMPTZ AS observed_at",
            {"coin": list(ranks), "rank": list(ranks.values()), "at": seen_at},
        )
    made.connection.execute(
        "INSERT INTO published.state.coin_labels BY NAME "
        "SELECT DISTINCT slug, slug AS symbol, slug AS name "
        "FROM (SELECT unnest(coins) AS slug FROM published.main.events)"
    )
