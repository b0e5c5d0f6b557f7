"""One attempt to deliver a webhook: check the target, POST, read the status.

The guard prevents requests into our own network. The name is looked up once, every address must be
public, and the connection is made to a checked address: a name that later resolves differently has
no effect.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

from catalog import ServerError
from catalog.contract.constants import WEBHOOK_TIMEOUT_S

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Given a host name and a port, returns its addresses; raises OSError when there is none."""

URL_LENGTH_MAX = 2_048
RESPONSE_BYTES_MAX = 16_384
# Visible ASCII without a backslash, and without "@" before the path.
_URL = re.compile(r"https?://[!-.0-?A-\[\]-~]+(/[!-\[\]-~]*)?", re.ASCII | re.IGNORECASE)
# The last label is not a number: resolvers read 2130706433, 0x7f.1 and 127.1 as addresses.
_NAME = re.compile(
    r"(?=.{1,253}$)([a-z0-9_-]{1,63}\.)*(?!([0-9]+|0x[0-9a-f]*)\.?$)[a-z0-9_-]{1,63}\.?", re.ASCII
)


_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Python releases differ on these: declared here, so that the result does not.
_SPECIAL = "192.0.0.0/24 192.88.99.0/24 2001::/23 2001:db8::/32 3fff::/20"
_LOCAL = "127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 ::1/128 fc00::/7"
# The metadata services of clouds give credentials to any client, and some are in a private range:
# Alibaba and Azure, then AWS, Google and Scaleway.
_METADATA = "100.100.100.200/32 168.63.129.16/32 fd00:ec2::/32 fd20:ce::/32 fd00:42::42/128"

# A separate pool: slow name servers must not take the threads that others wait for.
_LOOKUPS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="webhook-lookup")


async def resolve_host(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().run_in_executor(
        _LOOKUPS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return [str(sockaddr[0]) for *_, sockaddr in found]


def check_url(text: str, *, allow_private: bool) -> httpx.URL:
    """Return the URL; nothing is looked up.

    Raises:
        ServerError: not a plain http or https URL, or an address that is not allowed.
    """
    url = httpx.URL()
    with suppress(httpx.InvalidURL):
        url = httpx.URL(text if _URL.fullmatch(text) else "")
    address = _literal(url.host)
    if (
        len(text) > URL_LENGTH_MAX
        or (url.port is not None and not 1 <= url.port <= 65_535)
        or (address is None and not _NAME.fullmatch(url.host))
    ):
        raise ServerError(
            "expected a URL such as https://hooks.example/path: http or https, at most "
            f"{URL_LENGTH_MAX} visible ASCII characters without a backslash, no user name, an "
            "international name in its xn-- form, an address as four decimal numbers or in brackets"
        )
    if address is not None:
        _check_address(address, allow_private=allow_private)
    return url


async def check_target(
    text: str, *, allow_private: bool, resolve: Resolver
) -> tuple[httpx.URL, list[Address]]:
    """Return the URL and its checked addresses; the name is looked up exactly once.

    Raises:
        ServerError: as `check_url`, for any one of the addresses.
        OSError: the name has no address.
    """
    url = check_url(text, allow_private=allow_private)
    if _literal(url.host) is not None:
        return url, [ip_address(url.host)]
    found = await resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
    addresses = [ip_address(address) for address in dict.fromkeys(found)]
    for address in addresses:
        _check_address(address, allow_private=allow_private)
    if not addresses:
        raise OSError(f"{url.host} has no address")
    return url, addresses


def is_public(address: Address) -> bool:
    """Whether an address, and any IPv4 address it carries, is on the public internet."""
    carried = _carried(address)
    if carried:
        return all(map(is_public, carried))
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not _is_in(address, f"{_SPECIAL} {_METADATA}")
        and (isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST)
    )


def is_local(address: Address) -> bool:
    """Whether an address belongs to this host or a private network, and not to a metadata
    service."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _is_in(address, _LOCAL) and not _is_in(address, _METADATA)


def _is_in(address: Address, networks: str) -> bool:
    return any(address in ip_network(network) for network in networks.split())


def _carried(address: Address) -> Sequence[IPv4Address]:
    """Return the IPv4 addresses that packets to this address would be forwarded to."""
    if isinstance(address, IPv4Address):
        return ()
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    carried = address.ipv4_mapped or address.sixtofour
    return (address.teredo or ()) if carried is None else (carried,)


def _check_address(address: Address, *, allow_private: bool) -> None:
    if is_public(address) or (allow_private and is_local(address)):
        return
    way_out = "if this is intended, add the endpoint with --allow-private"
    if allow_private or not is_local(address):
        way_out = "no endpoint may use it"
    raise ServerError(f"{address} is not a public address; {way_out}")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The result of an attempt: the status, or why there is none."""

    status: int | None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass
class Poster:
    """Sends one body to one URL. Redirects, proxies and the environment are ignored."""

    tls: ssl.SSLContext | None = None
    resolve: Resolver = resolve_host
    timeout_s: float = WEBHOOK_TIMEOUT_S

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        """Return the outcome; a failure of the network or of the target is an outcome too."""
        try:
            async with asyncio.timeout(self.timeout_s):
                target, (*others, last) = await check_target(
                    url, allow_private=allow_private, resolve=self.resolve
                )
                for address in others:
                    with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                        return await self._post_to(target, address, body, headers)
                return await self._post_to(target, last, body, headers)
        except TimeoutError:
            return AttemptOutcome(None, f"no answer within {self.timeout_s:g} s")
        except (ServerError, OSError, httpx.HTTPError) as error:
            return AttemptOutcome(None, f"{type(error).__name__}: {error}"[:200])

    async def _post_to(
        self, target: httpx.URL, address: Address, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        # A separate client: a pool knows connections by address alone, and could reuse one
        # whose certificate was checked for another name.
        async with (
            httpx.AsyncClient(
                verify=self.tls or _trusted_by_default(),
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(self.timeout_s, connect=self.timeout_s / 3),
            ) as client,
            client.stream(
                "POST",
                target.copy_with(host=str(address), fragment=None),
                content=body,
                headers={**headers, "Host": target.netloc.decode("ascii"), "Connection": "close"},
                extensions={"sni_hostname": target.host},
            ) as response,
        ):
            # A short answer is read to its end, so that its sender sees no broken connection.
            with suppress(httpx.HTTPError):
                async for _ in response.aiter_raw(RESPONSE_BYTES_MAX):
                    break
            return AttemptOutcome(response.status_code)


@cache
def _trusted_by_default() -> ssl.SSLContext:
    """Return the certificates that httpx trusts: reading them takes 20 ms, once in a process."""
    return httpx.create_ssl_context(trust_env=False)
