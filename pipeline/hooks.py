"""A post of JSON to an address of the settings, and the lock of what was posted.

The address may contain a token and must be in no error and no log, so a bare transport sends the
request: httpx's client logs addresses. Belongs here: sending, and doing it in one process at a
time. Does not: what is due, what a body says (health).
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from pydantic import SecretStr

from resources.errors import Stop
from resources.http.network import DIRECT, Network, connection_error, proxy_refused
from resources.http.transport import DeadlineTransport

TIMEOUT_S: Final = 10.0
_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": "crypto-almanac"}


class NotPosted(Exception):
    """The receiver did not accept a post. Nothing was recorded, so it will be retried."""


def post_json(
    address: SecretStr,
    body: Any,
    error: type[NotPosted],
    what: str,
    *,
    timeout_s: float,
    network: Network = DIRECT,
) -> None:
    """Post a value once; a redirect is not followed.

    Raises:
        NotPosted: of the type `error`: no answer in time, or none with status 2xx.
    """
    request = httpx.Request(
        "POST",
        address.get_secret_value(),
        headers=_HEADERS,
        content=msgspec.json.encode(body),
        extensions={"timeout": httpx.Timeout(timeout_s).as_dict()},
    )
    with DeadlineTransport(address.get_secret_value(), network) as transport:
        transport.deadlines.at = time.monotonic() + timeout_s
        failure = _sent(transport, request)
    # Raised outside `with`, so that the error does not refer to the request with the address.
    if failure:
        raise error(f"{what} was not posted: {failure}. It will be retried.")


@contextmanager
def posting_alone(state: Path, lock_name: str) -> Iterator[None]:
    """Wait until no other process of this machine posts the same."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / lock_name).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sent(transport: DeadlineTransport, request: httpx.Request) -> str:
    """Send a request; return why it was not accepted, empty if it was."""
    try:
        response = transport.handle_request(request)
    except (httpx.TransportError, UnicodeError) as error:
        if not isinstance(error, httpx.ConnectError | httpx.ProxyError):
            return f"no answer ({type(error).__name__})"
        # The texts of these errors name no address.
        known = connection_error(error, "the post", str(error), transport.proxy)
        if isinstance(known, Stop):
            return str(known).rstrip(".")
        return f"no answer ({type(error).__name__})" if known is None else known.happened
    response.close()
    if response.status_code == 407 and transport.proxy is not None:
        refused = proxy_refused("the post", "407", transport.proxy, needs_login=True)
        return str(refused).rstrip(".")
    return "" if response.is_success else f"the response was {response.status_code}, expected 2xx"
