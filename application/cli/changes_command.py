"""`almanac changes --follow`: changes as JSON lines."""

import re
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from almanac.coins import resolve_slugs
from almanac.command_line import stop_by_signals
from almanac.commands import locate_warehouse
from almanac.console import EXIT_INTERRUPTED
from almanac.core.errors import InvalidArgument, WarehouseError
from almanac.core.timestamps import utc_now
from almanac.events import KINDS, MinImpact, make_impact_values, read_choices, resolve_categories
from almanac.reader import Ambiguous, Reader
from application.cli.options import instant_option
from application.console import print_json
from application.web.mirror.history_routes import read_changes
from application.web.mirror.publications import Publications
from catalog.contract.errors import InvalidCursor
from catalog.contract.plans import ENTERPRISE
from catalog.server.gating import CatalogView

_CURSOR: Final = re.compile(r"[A-Za-z0-9_-]{19,4096}")
_FOLLOWED_EVERY_S: Final = 0.5
_END: Final = datetime.fromisoformat("9999-12-31T00:00:00Z")
_PAGE: Final = 1_000
Change = dict[str, Any]
"""JSON values, as `/v2/events/changes` has them for a key of Enterprise. Its `cursor` continues
after it."""


def follow_changes(
    home: Path | None,
    filters: Mapping[str, Any],
    since: str | None,
    *,
    once: bool,
    ambiguous: Ambiguous,
) -> None:
    """Print each change of a home as a JSON line as it becomes known."""
    cursor = since if since is not None and _CURSOR.fullmatch(since) else None
    start = _END if since is None or cursor else instant_option("--since", since)
    warehouse = locate_warehouse(home)
    with closing(Reader(warehouse, ambiguous=ambiguous)) as reader:
        is_chosen = make_change_filter(reader, **filters)
    stop = threading.Event()
    stop_by_signals(stop.set)

    def pause() -> bool:
        return stop.wait(_FOLLOWED_EVERY_S) or _is_reader_gone()

    for change in watch_changes(warehouse, start, cursor, pause=pause, once=once):
        if is_chosen(change):
            print_json(change)
        if stop.is_set():
            break
    if stop.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)


def watch_changes(
    warehouse: Path,
    since: datetime,
    cursor: str | None,
    *,
    pause: Callable[[], bool],
    once: bool = False,
) -> Iterator[Change]:
    """Yield changes as they become known, until `pause` returns True; with `once`, until the last.

    Raises:
        WarehouseError: there is no published file, or it can't be read.
        InvalidArgument: the cursor is of another history.
    """
    with closing(Publications(warehouse, utc_now)) as publications:
        while True:
            store, now = publications.store(), publications.now()
            if once and publications.trouble is not None:
                raise WarehouseError(publications.trouble)
            reading = CatalogView(store, ENTERPRISE, ts=now, moment=now, as_of=None)
            try:
                page = read_changes(reading, since=since, cursor=cursor, limit=_PAGE)
            except InvalidCursor as error:
                raise InvalidArgument(
                    f"--since: {error.message}. Begin again with --since and a time."
                ) from error
            yield from msgspec.to_builtins(page.data)
            # All that is known now was read when a page ends where it began.
            if page.meta.cursor == cursor and (once or pause()):
                return
            cursor = page.meta.cursor


def make_change_filter(
    reader: Reader,
    coins: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    min_impact: MinImpact | None = None,
) -> Callable[[Change], bool]:
    """Return whether a change has one of these coins, kinds and categories, and the least impact.

    None is all.

    Raises:
        InvalidArgument: a kind or an impact does not exist.
        UnknownName, AmbiguousCoin: the home has no such coin or category, or several coins.
    """
    slugs = resolve_slugs(reader, coins)
    names = resolve_categories(reader, categories)
    listed = read_choices(kinds, "kinds", KINDS)
    least = make_impact_values(min_impact)

    def is_chosen(change: Change) -> bool:
        event = change["event"] or {}
        return (
            (listed is None or not set(listed).isdisjoint(change["kinds"]))
            and (slugs is None or any(each["slug"] in slugs for each in event.get("coins") or ()))
            and (names is None or any(n.lower() in names for n in event.get("categories") or ()))
            and (least["min_impact"] is None or _has_impact(event.get("impact"), **least))
        )

    return is_chosen


def _has_impact(score: float | str | None, min_impact: float, bands: Sequence[str]) -> bool:
    return score in bands or (isinstance(score, int | float) and score >= min_impact)


def _is_reader_gone() -> bool:
    """Whether the reader closed the pipe, which ends the command."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return False  # not a file, as in tests
    polled = select.poll()
    polled.register(output, 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in polled.poll(0))
