"""The check of `almanac doctor` on watched coins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warehouse.queries import connected
from warehouse.sql import Statements

if TYPE_CHECKING:
    from resources.http.client import CatalogClient

_SQL: Final = Statements(__package__)
LOOK_UPS_MAX: Final = 20
"""More coins are not looked up: each look-up counts against the quota."""
KNOWN: Final = frozenset({"listed", "found"})
"""The statuses of watched coins that need no attention."""
_MEANINGS: Final = {
    "unknown": "no coin has the slug {slugs}: correct ALMANAC_COINS",
    "not_covered": "the plan {plan} does not cover {slugs}: it shows none of their events",
    "untracked": "{slugs} are not tracked: no new events are added for them",
    "not_asked": "{slugs} are not in a published list and were not looked up",
}


def look_up_coins(
    slugs: Sequence[str], client: "CatalogClient", warehouse: Path
) -> dict[str, list[str]]:
    """Return the watched coins by status: a key of `_MEANINGS`, or of `KNOWN`.

    Raises:
        CatalogError: a look-up failed.
    """
    listed: set[str] = set()
    if warehouse.exists():
        with connected(warehouse) as connection:
            rows = connection.execute(_SQL["list_tracked_coins"], {"slugs": list(slugs)})
            listed = {slug for (slug,) in rows.fetchall()}
    found: dict[str, list[str]] = {}
    others = [slug for slug in slugs if slug not in listed]
    for slug in slugs:
        status = "listed"
        if slug in others[:LOOK_UPS_MAX]:
            status = client.coin(slug)
        elif slug in others:
            status = "not_asked"
        found.setdefault(status, []).append(slug)
    return found


def describe_coins(watched: Mapping[str, Sequence[str]], plan: str) -> str:
    """Return what a person should know of the watched coins, in one line."""
    texts = [
        text.format(slugs=", ".join(watched[status]), plan=plan)
        for status, text in _MEANINGS.items()
        if status in watched
    ]
    return "; ".join(texts) or f"{sum(map(len, watched.values()))} coins, all known to the service"
