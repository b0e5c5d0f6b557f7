"""The way to other machines: proxies, certificates, and failed connections.

httpx reads HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR from the
environment. The settings ALMANAC_PROXY and ALMANAC_CA_FILE take precedence.
"""

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.request import getproxies

import httpx
from pydantic import SecretStr

from resources.errors import CatalogError, RetryLater

_NO_TLS: Final = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")


@dataclass(frozen=True, slots=True)
class Network:
    """Proxy and certificates of the settings.

    `proxy` is for all requests; None leaves them to the environment, unless `is_direct`. `ca_file`
    has certificates that are trusted in addition.
    """

    proxy: SecretStr | None = None
    ca_file: Path | None = None
    is_direct: bool = False

    def http_client(self, **options: Any) -> httpx.Client:
        """Return a client of httpx, with more options of `httpx.Client`.

        Raises:
            OSError: a file of certificates can't be read.
            ValueError, httpx.InvalidURL, ImportError: a proxy can't be used.
        """
        trust, proxy = self.trust(), None
        if self.proxy is not None:
            address = self.proxy.get_secret_value()
            own_trust = trust if address.startswith("https://") else None
            proxy = httpx.Proxy(address, ssl_context=own_trust)
        return httpx.Client(verify=trust, proxy=proxy, trust_env=not self.is_direct, **options)

    def trust(self) -> ssl.SSLContext:
        """Return the trusted certificates.

        Raises:
            OSError: a file can't be read, or has no certificate (ssl.SSLError).
        """
        return _trust(self.ca_file)

    def __str__(self) -> str:
        """Return what is used, without a password."""
        proxies = {} if self.is_direct else getproxies()
        if self.proxy is not None:
            proxies = {"ALMANAC_PROXY": self.proxy.get_secret_value()}
        ways = [f"proxy {name} {_without_login(url)}" for name, url in proxies.items()]
        trusted = [] if self.ca_file is None else [f"{self.ca_file} is trusted, too"]
        return "; ".join([*(ways or ["no proxy"]), *trusted])


DIRECT: Final = Network(is_direct=True)
"""No proxy: for the embedded sandbox, which is in this process."""


def _without_login(address: str) -> str:
    scheme, mark, rest = address.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


@cache
def _trust(ca_file: Path | None) -> ssl.SSLContext:
    # Reading the public certificates takes 20 ms, once in a process.
    context = httpx.create_ssl_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


def connection_error(error: Exception, call: str, text: str) -> CatalogError:
    """Return the error for a call without a response. `text` is that of `error`, without secrets.

    The cause is not chained, since its traceback would keep the request and its key in memory.
    """
    if isinstance(error, httpx.ProxyError) and text.partition(": ")[2].startswith("4"):
        return proxy_refused(call, text)
    if isinstance(error, httpx.ConnectError) and any(fault in text for fault in _NO_TLS):
        return CatalogError(
            f"{call}: the certificate can't be verified ({text})",
            next_step="Check the address; set ALMANAC_CA_FILE to a PEM file if the certificate of "
            "the service or the proxy is of your own authority",
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL | httpx.LocalProtocolError):
        unsent = f"{call} could not be sent ({text})"
        return CatalogError(unsent, next_step="Check the base address")
    return RetryLater(f"{call} got no complete response ({text})")


def proxy_refused(call: str, text: str) -> CatalogError:
    return CatalogError(
        f"{call}: the proxy refused it ({text})",
        next_step="Check user, password and address in ALMANAC_PROXY or HTTPS_PROXY",
    )
