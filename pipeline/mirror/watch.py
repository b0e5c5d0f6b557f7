"""Watching changes: pages of them from a home or from a mirror, one after the other as they appear.

A change is a dictionary of JSON values, as `/v2/events/changes` has them. Its `cursor` continues
after it. The cursors of a home and of a mirror are not interchangeable.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, NamedTuple, Protocol

import httpx
import msgspec
from pydantic import SecretStr

from almanac.errors import AlmanacError
from catalog.contract import constants, errors
from catalog.contract.plans import ENTERPRISE
from catalog.server.routes import CursorSigner
from pipeline.mirror import version_feed
from pipeline.mirror.knowledge_routes import CHANGES_PATH, ChangeReader
from pipeline.mirror.mirror import cursor_secret
from pipeline.mirror.mirror_store import MirrorStore, ServedClock
from pipeline.mirror.published_catalog import utc_text
from pipeline.mirror.version_feed import VersionFeed
from warehouse.clock import utc_now

FOLLOWED_EVERY_S: Final = 0.5
_END: Final = "9999-12-31T00:00:00Z"
_HOME_PAGE: Final = 1_000
_TIMEOUT_S: Final = 30.0
_RETRIED_AFTER_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_SHOWN_CHARS: Final = 200
Change = dict[str, Any]


class WatchRefused(AlmanacError):
    """The changes can't be watched as asked; a repetition would end the same way."""


class SourceUnavailable(AlmanacError):
    """The source can't be reached now; a later attempt may succeed."""


class WatchedPage(NamedTuple):
    """Changes, the cursor after them, and whether all that is known now was read."""

    changes: list[Change]
    cursor: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class WatchStart:
    """Where a watch begins: after a cursor or a time; without either, at the end."""

    since: datetime | None = None
    cursor: str | None = None


class ChangeSource(Protocol):
    """A home or a mirror."""

    def read(self, start: WatchStart) -> WatchedPage:
        """Return the next changes.

        Raises:
            SourceUnavailable: a later attempt may succeed.
            WatchRefused: none will.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Changes of these kinds and of events with these coins, by slug or ticker; None is all."""

    kinds: frozenset[str] | None = None
    coins: frozenset[str] | None = None

    def matches(self, change: Change) -> bool:
        if self.kinds is not None and not self.kinds.intersection(change["kinds"]):
            return False
        if self.coins is None:
            return True
        linked = (change["event"] or {}).get("coins") or ()
        return any(self.coins & {each["slug"], each["symbol"].lower()} for each in linked)


class HomeSource:
    """The changes of a home, read from its published file without a server.

    `state_dir` keeps the order of the changes; several watches may share it.

    Raises:
        WarehouseError: there is no published file, or it or the feed can't be read.
    """

    def __init__(self, warehouse: Path, state_dir: Path) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as undo:
            feed = VersionFeed(state_dir / version_feed.FILE_NAME)
            undo.callback(feed.close)
            self._store = MirrorStore(warehouse, feed, utc_now, events_in_memory=0)
            self._clock = ServedClock(self._store, utc_now)
            self._reader = ChangeReader(self._store, CursorSigner(cursor_secret(state_dir)))
            self._undo = undo.pop_all()

    def close(self) -> None:
        self._undo.close()

    def read(self, start: WatchStart) -> WatchedPage:
        if (views := self._store.follow()) is not None:
            self._store.serve(views)
        if not self._store.is_recorded:
            raise SourceUnavailable(self._store.trouble or "the warehouse was published meanwhile")
        since = start.since or datetime.fromisoformat(_END)
        try:
            page = self._reader.read(
                *(ENTERPRISE, self._clock.now()),
                since=None if start.cursor else since,
                cursor=start.cursor,
                limit=_HOME_PAGE,
            )
        except errors.InvalidCursor as error:
            raise WatchRefused(f"--since: {error.message}. {_NEW_START}") from error
        except errors.ServiceUnavailable as error:
            raise SourceUnavailable(error.message) from error
        cursor = page.meta.cursor or ""
        is_last = cursor == start.cursor and page.meta.total == 0
        return WatchedPage(msgspec.to_builtins(page.data), cursor, is_last)


class MirrorSource:
    """The changes of a mirror. `key` is sent as the service's keys are, and to no other address."""

    def __init__(
        self,
        base_url: str,
        *,
        key: SecretStr | None = None,
        trust: SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._base_url = base_url
        headers = {} if key is None else {constants.KEY_HEADER: key.get_secret_value()}
        self._client = httpx.Client(
            base_url=base_url,
            headers=headers,
            verify=trust if base_url.startswith("https") else False,
            trust_env=False,
            timeout=_TIMEOUT_S,
            transport=transport,
        )

    def close(self) -> None:
        self._client.close()

    def read(self, start: WatchStart) -> WatchedPage:
        asked = {"limit": str(constants.EVENTS_LIMIT_MAX)}
        if start.cursor is not None:
            asked["cursor"] = start.cursor
        else:
            asked["since"] = _END if start.since is None else utc_text(start.since)
        try:
            answer = self._client.get(CHANGES_PATH, params=asked)
        except httpx.TransportError as error:
            raise SourceUnavailable(
                f"{self._base_url} can't be reached ({type(error).__name__})"
            ) from error
        if answer.status_code == 429 or answer.status_code >= 500:
            raise SourceUnavailable(f"{self._base_url} responded with {answer.status_code}")
        if answer.status_code != 200:
            raise WatchRefused(self._refusal(answer))
        try:
            page = answer.json()
            changes, meta = page["data"], page["meta"]
            cursor, total = str(meta["cursor"]), int(meta["total"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise WatchRefused(
                f"the response of {self._base_url} is not a page of changes. {_EXPECTED}"
            ) from error
        return WatchedPage(changes, cursor, cursor == start.cursor and total == 0)

    def _refusal(self, answer: httpx.Response) -> str:
        status = answer.status_code
        try:
            said = str(answer.json()["message"])[:_SHOWN_CHARS]
        except (json.JSONDecodeError, KeyError, TypeError):
            said = answer.reason_phrase
        hint = {
            400: _NEW_START,
            403: "The key must be one of the mirror's: `--key-file`, or ALMANAC_API_KEY.",
            404: _EXPECTED,
        }.get(status, _EXPECTED)
        return f"{self._base_url} refused the request with {status}: {said.rstrip('.')}. {hint}"


_NEW_START: Final = "Begin again with --since and a time."
_EXPECTED: Final = "Expected the address of `almanac serve`."


def watch_changes(
    source: ChangeSource,
    start: WatchStart,
    *,
    pause: Callable[[float], bool],
    note: Callable[[str], None],
    once: bool = False,
) -> Iterator[Change]:
    """Yield changes as they become known, until `pause` returns True; with `once`, until the last.

    `pause` waits for some seconds. An unavailable source is asked again, and `note` gets the reason
    once; with `once`, or before the first response, it is an error.

    Raises:
        SourceUnavailable, WatchRefused: see above.
    """
    failures, has_begun = 0, False
    while True:
        try:
            page = source.read(start)
        except SourceUnavailable as error:
            if once or not has_begun:
                raise
            if not failures:
                note(f"{error}. It is asked again until it responds.")
            waits_s = _RETRIED_AFTER_S[min(failures, len(_RETRIED_AFTER_S) - 1)]
            failures += 1
            if pause(waits_s):
                return
            continue
        if failures:
            note("the source responds again.")
        failures, has_begun = 0, True
        yield from page.changes
        is_new = page.cursor != start.cursor
        start = WatchStart(cursor=page.cursor)
        if page.is_last and once:
            return
        if not is_new and pause(FOLLOWED_EVERY_S):
            return
