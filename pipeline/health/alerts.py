"""Warnings that are posted to the alert address of the settings, and the record of posted ones.

    state/alerts.json    {kind: {since, at}} of posted warnings that have not ended
    {"text", "source", "at", "warnings": [{"kind", "text", "since"}], "resolved": [kind]}

A warning is posted when it begins, again after each day while it lasts, and once when it ends. It
is recorded after the receiver has accepted it, so that none is lost. The command line and the
daemon share the file; a lock prevents posting the same twice. `text` is a summary in one line for
chat hooks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from pydantic import SecretStr

from pipeline.health.records import Warned
from pipeline.health.report import health_of
from pipeline.hooks import TIMEOUT_S, NotPosted, post_json, posting_alone
from pipeline.settings import Settings, SettingsError
from resources.http.network import DIRECT, Network
from warehouse.errors import WarehouseError
from warehouse.files.documents import put_note, read_note
from warehouse.files.storage import Storage
from warehouse.home import Home

REPEATED_AFTER: Final = timedelta(hours=24)
ALERT: Final = "alert"
"""The name of the job that posts, without a prefix."""
_FILE: Final = "alerts.json"
_LOCK: Final = "alerts.lock"
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A posted warning: when it began, and when it was last posted."""

    since: _Instant
    at: _Instant
    about: tuple[str, ...] = ()


PostedBefore = Mapping[str, Reported]


@dataclass(frozen=True, slots=True)
class FoundWarnings:
    """The warnings of a home; `source` None means that there is no home, and nothing is posted.

    `is_all` is false if there may be others, for a home that can't be read.
    """

    source: str | None
    warnings: tuple[Warned, ...] = ()
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """The warnings to post: those that began, those last posted a day ago, those that ended."""

    begun: tuple[Warned, ...] = ()
    repeated: tuple[Warned, ...] = ()
    over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.begun or self.repeated or self.over)

    @property
    def warnings(self) -> tuple[Warned, ...]:
        return self.begun + self.repeated

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds to post, with `+` for a warning and `-` for its end."""
        marked = (
            *(f"+{warning.kind}" for warning in self.warnings),
            *(f"-{kind}" for kind in self.over),
        )
        return tuple(sorted(marked))


Post = Callable[[str, Changes, datetime], None]
"""Posts the changes of a source; if it raises, they are not recorded as posted."""


def changes(
    posted_before: PostedBefore, warnings: Sequence[Warned], *, now: datetime, is_all: bool = True
) -> Changes:
    """Return what to post after what was posted before; `since` is set, to now if it is unknown.

    A posted warning that is not among the warnings has ended, if they are all.
    """
    begun, repeated = [], []
    for warning in warnings:
        warned = posted_before.get(warning.kind)
        if warned is None or set(warning.about) - set(warned.about):
            begun.append(_since(warning, now))
        elif now - warned.at >= REPEATED_AFTER:
            repeated.append(_since(warning, warned.since))
    kinds = {warning.kind for warning in warnings}
    over = tuple(kind for kind in posted_before if is_all and kind not in kinds)
    return Changes(tuple(begun), tuple(repeated), over)


def posted_after(
    posted_before: PostedBefore, changes: Changes, *, now: datetime
) -> dict[str, Reported]:
    """Return the record of posted warnings after the changes are posted."""
    lasting = {kind: warned for kind, warned in posted_before.items() if kind not in changes.over}
    for warning in changes.warnings:
        lasting[warning.kind] = Reported(since=warning.since or now, at=now, about=warning.about)
    return lasting


def find_warnings(settings: Settings, home: Home, now: datetime) -> FoundWarnings:
    """Return the warnings of a home to post. A home that can't be read is itself a warning.

    Failed runs of the job that posts are left out: whoever would receive that has received it.
    """
    try:
        health = health_of(settings, home, now, leave_out=ALERT)
    except WarehouseError as error:
        # Not its text: it may name folders of this machine.
        text = f"The home can't be read ({type(error).__name__}): almanac status shows why"
        return FoundWarnings(settings.source, (Warned("damaged", text),), is_all=False)
    # Before the first pull the home has no stamp; what failed then is posted all the same.
    source = settings.source if health.warnings else health.source
    return FoundWarnings(source, tuple(health.warnings))


class Alerts:
    """The record of posted warnings of a home. `state` is its state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def posted(self) -> PostedBefore:
        """Return the posted warnings; an unreadable file counts as none: all are posted again."""
        return read_note(Storage(self._state), _FILE, dict[str, Reported]) or {}

    def due(self, found: FoundWarnings, *, now: datetime) -> Changes:
        """Return what to post. Nothing is written."""
        return _changes(self.posted(), found, now)

    def post_due(self, found: FoundWarnings, post: Post, *, now: datetime) -> Changes:
        """Post what is due under a lock of the machine, and return it.

        Raises:
            any error of `post`: nothing is then written, and the same is due again.
        """
        if found.source is None:
            return Changes()
        with posting_alone(self._state, _LOCK):
            posted_before = self.posted()
            changes = _changes(posted_before, found, now)
            if changes:
                post(found.source, changes, now)
                lasting = posted_after(posted_before, changes, now=now)
                put_note(Storage(self._state), _FILE, lasting)
        return changes


def _changes(posted_before: PostedBefore, found: FoundWarnings, now: datetime) -> Changes:
    if found.source is None:
        return Changes()
    return changes(posted_before, found.warnings, now=now, is_all=found.is_all)


def _since(warned: Warned, default: datetime) -> Warned:
    return replace(warned, since=warned.since or default)


class AlertNotPosted(NotPosted):
    """The receiver did not accept the alert."""


def post_changes(settings: Settings, home: Home, now: datetime) -> Changes:
    """Post the changes of warnings of a home, and return them.

    Raises:
        SettingsError: no address is set, or it can't be used.
        AlertNotPosted: the receiver did not accept it.
    """
    address = settings.alert_address()
    if address is None:
        raise SettingsError(
            "ALMANAC_ALERT_URL is not set. Set it to the address that receives warnings."
        )

    network = settings.network()

    def hook(source: str, changes: Changes, at: datetime) -> None:
        post(address, source, changes, at, network=network)

    return Alerts(home.state).post_due(find_warnings(settings, home, now), hook, now=now)


def post(
    address: SecretStr,
    source: str,
    changes: Changes,
    now: datetime,
    *,
    timeout_s: float = TIMEOUT_S,
    network: Network = DIRECT,
) -> None:
    """Post changes once; a redirect is not followed.

    Raises:
        AlertNotPosted: there was no answer in time, or none with status 2xx.
    """
    body = message_of(source, changes, now)
    post_json(address, body, AlertNotPosted, "The alert", timeout_s=timeout_s, network=network)


def message_of(source: str, changes: Changes, now: datetime) -> dict[str, Any]:
    """Return the JSON body of a post. It names no folder of this machine."""
    return {
        "text": summary_of(source, changes),
        "source": source,
        "at": now,
        "warnings": [
            {"kind": warning.kind, "text": warning.text, "since": warning.since}
            for warning in changes.warnings
        ],
        "resolved": list(changes.over),
    }


def summary_of(source: str, changes: Changes) -> str:
    """Return the changes in one line of text."""
    parts = [warning.text for warning in changes.warnings]
    if changes.over:
        parts.append(f"Resolved: {', '.join(changes.over)}")
    return f"Almanac, {source}: {'. '.join(parts)}."
