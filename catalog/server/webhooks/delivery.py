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
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Protocol

import httpx

from catalog.contract.constants import WEBHOOK_TIMEOUT_S

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Given a host name and a port, returns its addresses; raises OSError when there is none."""

URL_LENGTH_MAX = 2_048
_DEFAULT_PORTS = {"http": 80, "https": 443}
_VISIBLE_ASCII = re.compile(r"[!-~]+", re.ASCII)
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)

_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Python releases differ on these: declared here, so that the result does not.
_SPECIAL_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_SPECIAL_V6 = (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))

_LOCAL_V4 = tuple(
    IPv4Network(text)
    for text in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
_LOCAL_V6 = (IPv6Network("::1/128"), IPv6Network("fc00::/7"))
# The metadata services of clouds give credentials to any client, and some are in a private range:
# Alibaba and Azure, then AWS, Google and Scaleway.
_METADATA_V4 = (IPv4Network("100.100.100.200/32"), IPv4Network("168.63.129.16/32"))
_METADATA_V6 = tuple(
    IPv6Network(text) for text in ("fd00:ec2::/32", "fd20:ce::/32", "fd00:42::42/128")
)

# A separate pool: slow name servers must not take the threads that others wait for.
_LOOKUPS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="webhook-lookup")


class TargetRefused(Exception):
    """A URL that no webhook is sent to; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checked URL with the addresses of its name, in the resolver's order."""

    url: httpx.URL
    addresses: tuple[Address, ...]

    @property
    def host_header(self) -> str:
        return self.url.netloc.decode("ascii")

    @property
    def tls_name(self) -> str:
        """The name that the certificate must have."""
        return self.url.host

    def url_at(self, address: Address) -> httpx.URL:
        """Return the URL with the address in place of the name, so nothing is resolved again."""
        return self.url.copy_with(host=str(address), fragment=None)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system's resolver gives."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(
        _LOOKUPS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return [str(sockaddr[0]) for *_, sockaddr in found]


def parse_url(text: str) -> httpx.URL:
    """Return the URL if its form is acceptable; nothing is looked up.

    Raises:
        TargetRefused: not http or https, userinfo, a bad host or port, or not plain ASCII.
    """
    if len(text) > URL_LENGTH_MAX or not _VISIBLE_ASCII.fullmatch(text) or "\\" in text:
        raise TargetRefused(
            f"the URL must be at most {URL_LENGTH_MAX} visible ASCII characters without a "
            "backslash; write an international name in its xn-- form"
        )
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise TargetRefused(f"the URL cannot be read: {error}") from error
    if url.scheme not in _DEFAULT_PORTS or "://" not in text:
        raise TargetRefused(f"the URL must start with http:// or https://, got {text[:32]!r}")
    if "@" in text.split("://", 1)[1].split("/", 1)[0]:
        raise TargetRefused("the URL must not carry a user name or password")
    if url.port is not None and not 1 <= url.port <= 65_535:
        raise TargetRefused(f"the port must be from 1 to 65535, got {url.port}")
    _check_host(url.host)
    return url


def check_url(text: str, *, allow_private: bool) -> httpx.URL:
    """Return the URL if its form, and its address where the host is one, are acceptable.

    It needs no look-up of the name; used when an endpoint is added.

    Raises:
        TargetRefused: as `parse_url`, or the host is an address that is not allowed.
    """
    url = parse_url(text)
    literal = _literal(url.host)
    if literal is not None:
        _check_address(literal, allow_private=allow_private)
    elif not allow_private and f".{url.host}".endswith(".localhost"):
        raise TargetRefused(
            f"{url.host} is this host, which only an endpoint with allow_private may use"
        )
    return url


async def check_target(text: str, *, allow_private: bool, resolve: Resolver) -> Target:
    """Return the target with its checked addresses; the name is looked up exactly once.

    Raises:
        TargetRefused: the URL, or any one of the addresses, is not allowed.
        OSError: the name has no address.
    """
    url = parse_url(text)
    literal = _literal(url.host)
    if literal is not None:
        addresses = [literal]
    else:
        found = await resolve(url.host, url.port or _DEFAULT_PORTS[url.scheme])
        addresses = [ip_address(address) for address in dict.fromkeys(found)]
    if not addresses:
        raise OSError(f"{url.host} has no address")
    for address in addresses:
        _check_address(address, allow_private=allow_private)
    return Target(url, tuple(addresses))


def is_public(address: Address) -> bool:
    """Whether an address, and any IPv4 address it carries, is on the public internet."""
    if isinstance(address, IPv4Address):
        return (
            address.is_global
            and not address.is_multicast
            and not address.is_reserved
            and not any(address in network for network in (*_SPECIAL_V4, *_METADATA_V4))
        )
    carried = _carried(address)
    if carried:
        return all(map(is_public, carried))
    return (
        address in _GLOBAL_UNICAST
        and address.is_global
        and not any(address in network for network in _SPECIAL_V6)
    )


def is_local(address: Address) -> bool:
    """Whether an address is this host's or a private network's.

    Link-local, multicast, unspecified and any address of a cloud's metadata service are not.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if isinstance(address, IPv4Address):
        return any(address in network for network in _LOCAL_V4) and not any(
            address in network for network in _METADATA_V4
        )
    return any(address in network for network in _LOCAL_V6) and not any(
        address in network for network in _METADATA_V6
    )


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that packets to this address would be forwarded to."""
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return address.teredo or ()


def _check_address(address: Address, *, allow_private: bool) -> None:
    if is_public(address) or (allow_private and is_local(address)):
        return
    way_out = (
        "no endpoint may use it"
        if allow_private or not is_local(address)
        else "if this is intended, add the endpoint with --allow-private"
    )
    raise TargetRefused(f"{address} is not a public address; {way_out}")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _check_host(host: str) -> None:
    if _literal(host) is not None:
        return
    if len(host) > 253 or not _HOST_NAME.fullmatch(host):
        raise TargetRefused(f"the host {host[:64]!r} is neither a name nor an address")
    # Resolvers read 2130706433, 0x7f.1 and 127.1 as addresses; people do not.
    if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rsplit(".", 1)[-1]):
        raise TargetRefused(f"write the address {host!r} as four decimal numbers")


RESPONSE_BYTES_MAX = 16_384
_DRAIN_S = 1.0
_ERROR_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The result of an attempt: the status, or why there is none."""

    status: int | None
    error: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """Whether the receiver wants no more deliveries at this endpoint."""
        return self.status == 410


class DeliveryPoster(Protocol):
    """Sends one body to one URL; the sandbox's implementation makes faults."""

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome: ...


class Poster:
    """Sends one body to one URL. Redirects, proxies and the environment are ignored."""

    def __init__(
        self,
        *,
        resolve: Resolver = resolve_host,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = WEBHOOK_TIMEOUT_S,
    ) -> None:
        self._resolve = resolve
        self._tls = tls
        self._timeout_s = timeout_s

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        """Return the outcome; a failure of the network or of the target is an outcome too."""
        try:
            async with asyncio.timeout(self._timeout_s):
                target = await check_target(url, allow_private=allow_private, resolve=self._resolve)
                return await self._post(target, body, headers)
        except TimeoutError:
            return AttemptOutcome(None, f"no answer within {self._timeout_s:g} s")
        except TargetRefused as error:
            return AttemptOutcome(None, f"refused: {error}"[:_ERROR_LENGTH_MAX])
        except (OSError, httpx.HTTPError) as error:
            return AttemptOutcome(None, f"{type(error).__name__}: {error}"[:_ERROR_LENGTH_MAX])

    async def _post(
        self, target: Target, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        """Try the checked addresses in turn until one accepts a connection."""
        *others, last = target.addresses
        for address in others:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._post_to(target, target.url_at(address), body, headers)
        return await self._post_to(target, target.url_at(last), body, headers)

    async def _post_to(
        self, target: Target, url: httpx.URL, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        # A separate client: a pool knows connections by address alone, and could reuse one
        # whose certificate was checked for another name.
        async with (
            httpx.AsyncClient(
                verify=self._tls or _trusted_by_default(),
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(self._timeout_s, connect=self._timeout_s / 3),
            ) as client,
            client.stream(
                "POST",
                url,
                content=body,
                headers={
                    "Accept": "*/*",
                    "Accept-Encoding": "identity",
                    **headers,
                    "Host": target.host_header,
                    "Connection": "close",
                },
                extensions={"sni_hostname": target.tls_name},
            ) as response,
        ):
            await _drain(response)
            return AttemptOutcome(response.status_code)


@cache
def _trusted_by_default() -> ssl.SSLContext:
    """Return the certificates that httpx trusts: reading them takes 20 ms, once in a process."""
    return httpx.create_ssl_context(trust_env=False)


async def _drain(response: httpx.Response) -> None:
    """Read a short answer to its end, so that its sender sees no broken connection."""
    read = 0
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_DRAIN_S):
            async for chunk in response.aiter_raw():
                read += len(chunk)
                if read >= RESPONSE_BYTES_MAX:
                    return
