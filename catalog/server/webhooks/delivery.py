"""One attempt to deliver a webhook: check the target, POST, judge the answer.

Belongs here: a single request. Does not: what is due, what an outcome leads to (sender).
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import httpx

from catalog.contract.decisions import WEBHOOK_TIMEOUT_S
from catalog.server.webhooks.url_guard import (
    Resolver,
    Target,
    TargetRefused,
    check_target,
    resolve_host,
)

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


class Posts(Protocol):
    """What sends one body to one URL; a sandbox's makes faults."""

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
