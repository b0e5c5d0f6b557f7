"""Posts each warning to ALMANAC_ALERT_URL once when it begins, and once when it ends.

    state/alerts.json    {kind: time} of the posted warnings that have not ended, with the time of
    the post

The file is written after the receiver accepted the post, so that the next call repeats a refused
post. An address may contain a token, so no error and no log shows it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import httpx
import msgspec
from pydantic import SecretStr

from almanac.core.errors import AlmanacError
from pipeline.settings import Settings, SettingsError
from resources.credentials import conceal_in_logs
from resources.http.network import DIRECT, Network, connection_error
from warehouse.files.documents import put_note, read_note
from warehouse.home import Home

_TIMEOUT_S: Final = 10.0
ALERTS: Final = "alerts.json"
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "crypto-almanac"}
_Posted = dict[str, Annotated[datetime, msgspec.Meta(tz=True)]]


class NotPosted(AlmanacError):
    """The receiver did not accept a post. The post was not recorded, so it will be retried."""


def post_warnings(
    settings: Settings, home: Home, warnings: Mapping[str, str | None], now: datetime
) -> tuple[str, ...]:
    """Post the warnings that began or ended; return their kinds, with `+` or `-`.

    `warnings` has the text of each kind that could be judged, None for those that are off.

    Raises:
        SettingsError: no address is set, or it can't be used.
        NotPosted: the receiver did not accept it.
    """
    address = settings.alert_url
    if address is None:
        raise SettingsError("ALMANAC_ALERT_URL is not set.")
    posted = read_note(home.state_storage, ALERTS, _Posted) or {}
    begun = {kind: text for kind, text in warnings.items() if text and kind not in posted}
    over = [kind for kind in posted if kind in warnings and warnings[kind] is None]
    if begun or over:
        parts = [*begun.values(), *([f"Resolved: {', '.join(over)}"] if over else [])]
        body = {
            "text": f"Almanac, {settings.source}: {'. '.join(parts)}.",
            "source": settings.source,
            "at": now,
            "warnings": [{"kind": kind, "text": text} for kind, text in begun.items()],
            "resolved": over,
        }
        post_json(address, body, "The alert", network=settings.network())
        kept = {kind: at for kind, at in posted.items() if kind not in over}
        put_note(home.state_storage, ALERTS, kept | dict.fromkeys(begun, now))
    return (*(f"+{kind}" for kind in begun), *(f"-{kind}" for kind in over))


def post_json(
    address: SecretStr,
    body: Any,
    what: str,
    *,
    network: Network = DIRECT,
) -> None:
    """Post a value once; a redirect is not followed.

    Raises:
        NotPosted: there was no response in time, or none with status 2xx.
    """
    conceal_in_logs(address)
    content = msgspec.json.encode(body)
    try:
        with (
            network.http_client(headers=_HEADERS, timeout=_TIMEOUT_S) as http,
            http.stream("POST", address.get_secret_value(), content=content) as sent,
        ):
            why = f"the response was {sent.status_code}, expected 2xx"
            failure = "" if 200 <= sent.status_code < 300 else why
    except (httpx.ConnectError, httpx.ProxyError) as error:
        # The texts of these errors name no address.
        text = f"{type(error).__name__}: {error}"
        failure = str(connection_error(error, "the post", text)).rstrip(".")
    except (httpx.TransportError, UnicodeError) as error:
        failure = f"no response ({type(error).__name__})"
    # Raised outside `except`, so that the error does not refer to the request with the address.
    if failure:
        raise NotPosted(f"{what} was not posted: {failure}. It will be retried.")
