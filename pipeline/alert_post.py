"""Posting what began and what is over, as JSON, to the address of the settings.

    {"text", "source", "at", "warnings": [{"kind", "text", "since"}], "resolved": [kind]}

`text` sums it up in one line: hooks of chats show it. The address may carry a token: it appears
in no error and no log. So it is sent by a bare transport, since httpx's client logs addresses.
"""

import time
from datetime import datetime
from typing import Any, Final

import httpx
import msgspec
from pydantic import SecretStr

from pipeline.alerts import Alerts, Changes, find
from pipeline.settings import Settings, SettingsError
from resources.deadline import DeadlineTransport
from warehouse.home import Home

TIMEOUT_S: Final = 10.0
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "crypto-almanac"}


class AlertNotPosted(Exception):
    """The receiver did not accept it. Nothing was noted: it is tried again."""


def post_changes(settings: Settings, home: Home, now: datetime) -> Changes:
    """Post what there is to tell of a home, and return it; empty is nothing.

    Raises:
        SettingsError: no address is set, or it can't be used.
        AlertNotPosted: the receiver did not accept it.
    """
    address = settings.alert_address()
    if address is None:
        raise SettingsError("ALMANAC_ALERT_URL is not set: there is nowhere to post warnings to.")

    def hook(source: str, told: Changes, at: datetime) -> None:
        post(address, source, told, at)

    return Alerts(home.state).tell(find(settings, home, now), hook, now=now)


def post(
    address: SecretStr, source: str, told: Changes, now: datetime, *, timeout_s: float = TIMEOUT_S
) -> None:
    """Post changes once; a redirect is not followed.

    Raises:
        AlertNotPosted: no answer in time, or one that is not 2xx.
    """
    request = httpx.Request(
        "POST",
        address.get_secret_value(),
        headers=_HEADERS,
        content=msgspec.json.encode(message_of(source, told, now)),
        extensions={"timeout": httpx.Timeout(timeout_s).as_dict()},
    )
    with DeadlineTransport() as transport:
        transport.deadlines.at = time.monotonic() + timeout_s
        failure = _sent(transport, request)
    # Out here, so that the error does not refer to the request, which has the address.
    if failure:
        raise AlertNotPosted(f"The alert was not posted: {failure}. It is tried again.")


def message_of(source: str, told: Changes, now: datetime) -> dict[str, Any]:
    """Return the body of a post. It names no folder of this machine."""
    return {
        "text": summary_of(source, told),
        "source": source,
        "at": now,
        "warnings": [
            {"kind": one.kind, "text": one.text, "since": one.since} for one in told.warnings
        ],
        "resolved": list(told.over),
    }


def summary_of(source: str, told: Changes) -> str:
    """Return what is told, in one line."""
    parts = [one.text for one in told.warnings]
    if told.over:
        parts.append(f"Over: {', '.join(told.over)}")
    return f"Almanac, {source}: {'. '.join(parts)}."


def _sent(transport: httpx.BaseTransport, request: httpx.Request) -> str:
    """Return why a request was not accepted, empty where it was."""
    try:
        response = transport.handle_request(request)
    except (httpx.TransportError, UnicodeError) as error:
        return f"no answer ({type(error).__name__})"
    response.close()
    return "" if response.is_success else f"the answer was {response.status_code}, expected 2xx"
