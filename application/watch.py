"""Following changes: pages of them from a home or a mirror, one after the other as they appear.

A change is a dictionary of JSON values, as `/v2/events/changes` has them. Its `cursor` continues
after it, also at another mirror of the home for a key of the same plan; a home is read as
Enterprise.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, NamedTuple

import httpx
import msgspec
from pydantic import SecretStr

from almanac.coins import resolve_slugs, split_pair
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import utc_now
from almanac.events import KINDS, MinImpact, make_impact_values, read_choices, resolve_categories
from almanac.reader import Reader
from application.web.mirror.as_of import utc_text
from application.web.mirror.history_routes import CHANGES_PATH, read_changes
from application.web.mirror.publications import Publications
from catalog.contract import constants
from catalog.contract.errors import InvalidCursor
from catalog.contract.plans import ENTERPRISE
from catalog.server.gating import CatalogView
from resources.errors import RetryLater

FOLLOWED_EVERY_S: Final = 0.5
_END: Final = datetime.fromisoformat("9999-12-31T00:00:00Z")
_HOME_PAGE: Final = 1_000
_TIMEOUT_S: Final = 30.0
_RETRIED_AFTER_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_SHOWN_CHARS: Final = 200
_NEW_START: Final = "Begin again with --since and a time."
_EXPECTED: Final = "Expected the address of `almanac serve`."
_HINTS: Final = {
    400: _NEW_START,
    403: "The key must be one of the mirror's: `--key-file`, or ALMANAC_API_KEY.",
}
Change = dict[str, Any]
Page = tuple[list[Change], str]
"""Changes, and the cursor after them."""


class WatchStart(NamedTuple):
    """Where a watch begins: after a cursor or a time; without either, at the end."""

    since: datetime | None = None
    cursor: str | None = None


def make_change_filter(
    reader: Reader | None,
    coins: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    min_impact: MinImpact | None = None,
) -> Callable[[Change], bool]:
    """Return whether a change has one of these coins, kinds and categories, and the least impact.

    None is all. Without a reader of the home, a name that no change has is not refused, and a
    ticker of several coins is all of them.

    Raises:
        InvalidArgument: a kind or an impact does not exist.
        UnknownName, AmbiguousCoin: the home has no such coin or category, or several coins.
    """
    texts = {text.lower() for coin in coins or () for text in (coin, *split_pair(coin))}
    named = {text.replace("ticker:", "symbol:") for text in texts}
    if reader is not None:
        named = {f"slug:{slug}" for slug in resolve_slugs(reader, coins) or ()}
        categories = resolve_categories(reader, categories)
    wanted = {name.lower() for name in categories or ()}
    listed = read_choices(kinds, "kinds", KINDS)
    impact = make_impact_values(min_impact)

    def is_chosen(change: Change) -> bool:
        event = change["event"] or {}
        score = event.get("impact")
        names = {
            mark + coin[field].lower()
            for coin in event.get("coins") or ()
            for field in ("slug", "symbol", "name")
            for mark in ("", f"{field}:")
        }
        return (
            (listed is None or any(kind in listed for kind in change["kinds"]))
            and (coins is None or not named.isdisjoint(names))
            and (not wanted or any(n.lower() in wanted for n in event.get("categories") or ()))
            and (
                impact["min_impact"] is None
                or score in impact["bands"]
                or (isinstance(score, int | float) and score >= impact["min_impact"])
            )
        )

    return is_chosen


class HomeSource:
    """The changes of a home, read from its published file without a server.

    Raises:
        WarehouseError: there is no published file, or it can't be read.
    """

    def __init__(self, warehouse: Path) -> None:
        self._publications = Publications(warehouse, utc_now)

    def close(self) -> None:
        self._publications.close()

    def read(self, start: WatchStart) -> Page:
        store, now = self._publications.store(), self._publications.now()
        if self._publications.trouble is not None:
            raise _unavailable(self._publications.trouble)
        reading = CatalogView(store, ENTERPRISE, ts=now, moment=now, as_of=None)
        since = start.since or _END
        try:
            page = read_changes(reading, since=since, cursor=start.cursor, limit=_HOME_PAGE)
        except InvalidCursor as error:
            raise InvalidArgument(f"--since: {error.message}. {_NEW_START}") from error
        return _read_page(msgspec.to_builtins(page))


class MirrorSource:
    """The changes of a mirror. `key` is sent in the same way as a key of the service, and only to
    this address."""

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

    def read(self, start: WatchStart) -> Page:
        asked = {"since": utc_text(start.since or _END)}
        if start.cursor is not None:
            asked = {"cursor": start.cursor}
        try:
            answer = self._client.get(
                CHANGES_PATH, params={"limit": constants.EVENTS_LIMIT_MAX, **asked}
            )
        except httpx.TransportError as error:
            raise _unavailable(
                f"{self._base_url} can't be reached ({type(error).__name__})"
            ) from error
        status = answer.status_code
        if status == 429 or status >= 500:
            raise _unavailable(f"{self._base_url} responded with {status}")
        try:
            body = answer.json()
            if status == 200:
                return _read_page(body)
            said = str(body["message"])[:_SHOWN_CHARS].rstrip(".")
        except (KeyError, TypeError, ValueError):
            said = "it is not a page of changes" if status == 200 else answer.reason_phrase
        raise InvalidArgument(
            f"{self._base_url} responded with {status}: {said}. {_HINTS.get(status, _EXPECTED)}"
        )


def _unavailable(happened: str) -> RetryLater:
    return RetryLater(happened, next_step="Try again later")


def _read_page(body: dict[str, Any]) -> Page:
    return body["data"], body["meta"]["cursor"]


def watch_changes(
    source: HomeSource | MirrorSource,
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
        RetryLater: the source can't be reached now.
        InvalidArgument: it refuses `start`; a repetition would end the same way.
    """
    failures, has_begun = 0, False
    while True:
        try:
            changes, cursor = source.read(start)
        except RetryLater as error:
            if once or not has_begun:
                raise
            if not failures:
                note(f"{error.happened}. The request is repeated until it responds.")
            waits_s = _RETRIED_AFTER_S[min(failures, len(_RETRIED_AFTER_S) - 1)]
            failures += 1
            if pause(waits_s):
                return
            continue
        if failures:
            note("the source responds again.")
        failures, has_begun = 0, True
        yield from changes
        # All that is known now was read when a page ends where it began.
        if cursor == start.cursor and (once or pause(FOLLOWED_EVERY_S)):
            return
        start = WatchStart(cursor=cursor)
