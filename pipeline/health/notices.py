"""Posts to addresses of the settings: warnings that began or ended, and what others post.

    state/alerts.json    {kind: PostedWarning} of posted warnings

A post is recorded after the receiver accepted it, so that none is lost. The command line and the
sensors share the files, under a lock. An address may contain a token and must be in no error and no
log, so a bare transport sends the request: httpx's client logs addresses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import httpx
import msgspec
from pydantic import SecretStr

from pipeline.health.checks import FoundWarnings, find_warnings
from pipeline.health.facts import HealthWarning
from pipeline.settings import Settings, SettingsError
from resources.errors import RetryLater
from resources.http.network import DIRECT, Network, conceal_in_logs, connection_error
from warehouse.files.documents import put_note, read_note
from warehouse.files.locks import hold_lock
from warehouse.home import Home

POSTED_EVERY: Final = timedelta(hours=24)
"""A warning is posted at most once in this time, however often it begins, and while it lasts."""
TIMEOUT_S: Final = 10.0
_LOCK_WAIT_S: Final = 2 * TIMEOUT_S
_ALERTS: Final = "alerts.json"
_SLACK: Final = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "crypto-almanac"}
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class NotPosted(Exception):
    """The receiver did not accept a post. Nothing was recorded, so it will be retried."""


class PostedWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A posted warning: when it began, when it was last posted, and whether it has ended."""

    since: _Time
    at: _Time
    is_over: bool = False


PostedWarnings = Mapping[str, PostedWarning]


@dataclass(frozen=True, slots=True)
class WarningChanges:
    """The warnings to post, and the kinds of those that ended."""

    warnings: tuple[HealthWarning, ...] = ()
    over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.warnings or self.over)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds to post, with `+` for a warning and `-` for its end."""
        begun = (f"+{warning.kind}" for warning in self.warnings)
        return tuple(sorted((*begun, *(f"-{kind}" for kind in self.over))))


def find_changes(
    posted: PostedWarnings, warnings: Sequence[HealthWarning], *, now: datetime, is_all: bool = True
) -> WarningChanges:
    """Return what to post. A posted warning that is not among all warnings has ended."""
    begun = []
    for warning in warnings:
        last = posted.get(warning.kind)
        if last is None or now - last.at >= POSTED_EVERY:
            known = last.since if last is not None and not last.is_over else now
            begun.append(replace(warning, since=warning.since or known))
    kinds = {warning.kind for warning in warnings}
    over = (kind for kind, last in posted.items() if not last.is_over and kind not in kinds)
    return WarningChanges(tuple(begun), tuple(over) if is_all else ())


def record_changes(
    posted: PostedWarnings, changes: WarningChanges, *, now: datetime
) -> dict[str, PostedWarning]:
    """Return the record of posted warnings after the changes are posted."""
    kept = {
        kind: msgspec.structs.replace(last, is_over=last.is_over or kind in changes.over)
        for kind, last in posted.items()
        if not last.is_over or now - last.at < POSTED_EVERY
    }
    begun = {
        warning.kind: PostedWarning(since=warning.since or now, at=now)
        for warning in changes.warnings
    }
    return kept | begun


def read_posted_warnings(home: Home) -> PostedWarnings:
    """Return the posted warnings; an unreadable record counts as none: all are posted again."""
    return read_note(home.state_storage, _ALERTS, dict[str, PostedWarning]) or {}


def post_warnings(
    settings: Settings, home: Home, now: datetime, *, found: FoundWarnings | None = None
) -> WarningChanges:
    """Post the warnings of a home that began or ended, and return them.

    Raises:
        SettingsError: no address is set, or it can't be used.
        NotPosted: the receiver did not accept it.
        LockHeld: another process posts.
    """
    address = settings.alert_address()
    if address is None:
        raise SettingsError(
            "ALMANAC_ALERT_URL is not set. Set it to the address that receives warnings."
        )
    found = found or find_warnings(settings, home, now)
    if found.source is None:
        return WarningChanges()
    with hold_lock(home.state / "alerts.lock", "to post warnings", wait_s=_LOCK_WAIT_S):
        posted = read_posted_warnings(home)
        changes = find_changes(posted, found.warnings, now=now, is_all=found.is_all)
        if changes:
            body = make_alert(found.source, changes, now)
            post_json(address, body, "The alert", network=settings.network())
            put_note(home.state_storage, _ALERTS, record_changes(posted, changes, now=now))
    return changes


def make_alert(source: str, changes: WarningChanges, now: datetime) -> dict[str, Any]:
    """Return the JSON body of an alert. `text` is one line, for chat. It names no local folder."""
    parts = [warning.text for warning in changes.warnings]
    if changes.over:
        parts.append(f"Resolved: {', '.join(changes.over)}")
    return {
        "text": f"Almanac, {source}: {'. '.join(parts)}.",
        "source": source,
        "at": now,
        "warnings": [
            {"kind": warning.kind, "text": warning.text, "since": warning.since}
            for warning in changes.warnings
        ],
        "resolved": list(changes.over),
    }


def is_slack(address: SecretStr) -> bool:
    """Return whether an address is one of Slack's webhooks, which take messages of their form."""
    return httpx.URL(address.get_secret_value()).host in _SLACK


def post_json(
    address: SecretStr,
    body: Any,
    what: str,
    *,
    timeout_s: float = TIMEOUT_S,
    network: Network = DIRECT,
) -> None:
    """Post a value once; a redirect is not followed.

    Raises:
        NotPosted: there was no response in time, or none with status 2xx.
    """
    failure = _send(
        httpx.URL(address.get_secret_value()), msgspec.json.encode(body), timeout_s, network
    )
    # Raised outside of the handler, so that the error does not refer to the request's address.
    if failure:
        raise NotPosted(f"{what} was not posted: {failure}. It will be retried.")


def _send(url: httpx.URL, body: bytes, timeout_s: float, network: Network) -> str:
    """Send a post; return why it was not accepted, empty if it was."""
    conceal_in_logs(SecretStr(str(url)))
    try:
        with (
            network.http_client(headers=_HEADERS, timeout=timeout_s) as http,
            http.stream("POST", url, content=body) as response,
        ):
            status = response.status_code
    except (httpx.TransportError, UnicodeError) as error:
        # The texts of these errors name no address.
        known = connection_error(error, "the post", f"{type(error).__name__}: {error}")
        is_lost = isinstance(known, RetryLater)
        return f"no response ({type(error).__name__})" if is_lost else str(known).rstrip(".")
    return "" if 200 <= status < 300 else f"the response was {status}, expected 2xx"
