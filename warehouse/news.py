"""Find waiting batches that bring news: with which a merge would change the known data.

    state/quiet_batches.json    the waiting batches without news

They are folded into a copy of the newest state, in memory; the lake is not written. No lock is
held: a merge at the same time may at most make the answer "yes".
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import duckdb
import msgspec

from warehouse.errors import BatchFailed, WarehouseError
from warehouse.files.documents import put_note, read_note
from warehouse.history.change_log import ChangeLog, DayFile
from warehouse.history.day import Checkpoints, follow
from warehouse.history.fold import Fold
from warehouse.history.observations import order_observations
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest
from warehouse.sql import Statements

_SQL: Final = Statements(__package__)
_FOLDED: Final = frozenset[Feed]({"events", "event", "cancellations"})
"""Batches of other feeds always count as news, and all that wait with them."""

FILE: Final = "quiet_batches.json"

log = logging.getLogger(__name__)


class QuietBatches(msgspec.Struct, frozen=True, kw_only=True):
    """The batches that were found to bring no news."""

    batches: tuple[str, ...] = ()


def quiet_batches(home: Home, pending: Iterable[str]) -> frozenset[str]:
    """Return those of some waiting batches that were found to bring no news.

    They wait for the next merge of a batch with news, or of the daily pull.
    """
    note = read_note(home.state_storage, FILE, QuietBatches)
    return frozenset() if note is None else frozenset(note.batches).intersection(pending)


def find_news(home: Home) -> frozenset[str]:
    """Return the waiting batches that bring news, and note the others, each judged once."""
    pending = home.landing.pending()
    known = quiet_batches(home, pending)
    new = [batch_id for batch_id in pending if batch_id not in known]
    news = find_batches_with_news(home, new)
    quiet = tuple(sorted({*known, *new} - news))
    if quiet or known:
        put_note(home.state_storage, FILE, QuietBatches(batches=quiet))
    return news


def find_batches_with_news(home: Home, batch_ids: Sequence[str]) -> frozenset[str]:
    """Return those of some landed batches with which a merge would change more than times.

    Times are when an event was last seen, updated or verified. A batch that can't be judged, as
    when it sorts before merged batches, counts as news: a merge decides.
    """
    every = frozenset(batch_ids)
    if not every:
        return every
    try:
        manifests, damaged = home.landing.readable(batch_ids)
        if damaged or any(manifest.feed not in _FOLDED for manifest in manifests):
            return every
        days = ChangeLog.of(home).days()
        if not days or not follow(days[-1], manifests):
            return every
        with home.connect() as connection:
            return frozenset(_with_news(connection, home, days[-1], manifests))
    except (WarehouseError, BatchFailed, duckdb.Error, OSError) as error:
        log.warning("Landed batches count as news, since they can't be compared: %s", error)
        return every


def _with_news(
    connection: duckdb.DuckDBPyConnection, home: Home, last: DayFile, manifests: list[Manifest]
) -> set[str]:
    head, fold = last.head, Fold(connection)
    if head.checkpoint is None:
        return {manifest.batch_id for manifest in manifests}
    Checkpoints(home.lake).load(head.checkpoint, fold, head.fold_id, head.files)
    found: set[str] = set()
    recorded = {
        problem
        for record in last.meta["batches"]
        for problem in _problems(
            record["feed"], record["rejected"], record["flagged"], record["status"]
        )
    }
    for observation in order_observations(manifests):
        manifest = observation.manifest
        before = _known(connection)
        outcome = fold.fold(observation, home.landing)
        problems = _problems(manifest.feed, outcome.rejected, outcome.flagged, outcome.status)
        if outcome.versions or problems - recorded or _known(connection) != before:
            found.add(manifest.batch_id)
        recorded |= problems
    return found


def _problems(
    feed: str, rejected: int, flagged: str | None, status: str
) -> frozenset[tuple[str, str]]:
    """Return the problems of a batch. A repeated problem is news once a day."""
    found = {"rejected": rejected, "flagged": flagged, "quarantined": status != "merged"}
    return frozenset((feed, name) for name, is_found in found.items() if is_found)


def _known(connection: duckdb.DuckDBPyConnection) -> Any:
    """Return the state beside versions: missing events, waiting cancellations."""
    return connection.execute(_SQL["known_beside_versions"]).fetchall()
