"""The watchlist (`ALMANAC_COINS`), compared with the coins of the service.

A slug that no coin has narrows every pull to nothing, and no list says so. A coin that the
published list has is known; any other is looked up by its slug, one request each. Belongs here:
what is known of each coin. Does not: how it is shown (pipeline/cli).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from resources.http.client import CatalogClient
from warehouse.queries import connected

LOOK_UPS_MAX: Final = 20
"""More coins are not looked up: each look-up counts against the quota."""
WatchedStatus = Literal["listed", "found", "untracked", "unknown", "not_covered", "not_asked"]


@dataclass(frozen=True, slots=True)
class WatchedCoin:
    """`unknown`: no coin has the slug. `not_covered`: the plan does not include the coin."""

    slug: str
    status: WatchedStatus

    @property
    def holds(self) -> bool:
        return self.status != "unknown"


def watched_coins(
    slugs: Sequence[str], client: CatalogClient, warehouse: Path
) -> Iterator[WatchedCoin]:
    """Yield what is known of each watched coin.

    Raises:
        CatalogError: a look-up failed.
    """
    listed = _listed(warehouse, slugs)
    for slug in slugs:
        if slug in listed:
            yield WatchedCoin(slug, "listed")
    others = [slug for slug in slugs if slug not in listed]
    for place, slug in enumerate(others):
        status: WatchedStatus = "not_asked"
        if place < LOOK_UPS_MAX:
            answer = client.coin(slug)
            status = answer.status
            if answer.tracked is False:
                status = "untracked"
        yield WatchedCoin(slug, status)


def explained(watched: Sequence[WatchedCoin], plan: str) -> str:
    """Return what a person should know of the watchlist, in one line."""
    meanings = {
        "unknown": "no coin has the slug {slugs}: correct ALMANAC_COINS",
        "not_covered": "the plan {plan} does not cover {slugs}: it shows none of their events",
        "untracked": "{slugs} are not tracked: no new events are added for them",
        "not_asked": "{slugs} are in no published list and were not looked up",
    }
    found = []
    for status, text in meanings.items():
        slugs = [coin.slug for coin in watched if coin.status == status]
        if slugs:
            found.append(text.format(slugs=", ".join(slugs), plan=plan))
    return "; ".join(found) or f"{len(watched)} coins, all known to the service"


def _listed(warehouse: Path, slugs: Sequence[str]) -> set[str]:
    """Return the slugs that the published list of coins has as tracked; none without a file."""
    if not warehouse.exists():
        return set()
    with connected(warehouse) as connection:
        rows = connection.execute(
            "SELECT slug FROM coins WHERE list_contains($slugs, slug) AND tracked "
            "AND missing_since IS NULL",
            {"slugs": list(slugs)},
        ).fetchall()
    return {slug for (slug,) in rows}
