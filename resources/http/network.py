"""The way to other machines: which proxy a request takes, and which certificates are trusted.

The settings make one `Network` for a command; nothing here reads the environment. The address of a
proxy may contain a password: no repr and no message shows it. Belongs here: the choice for an
address, the trusted certificates, what a failed connection means. Does not: sending (transport.py).
"""

import re
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx
from pydantic import SecretStr

from resources.errors import CertificateRejected, ProxyRefused, Stop, Unreachable

_UNVERIFIED: Final = re.compile(r"certificate verify failed: (.*?)\.?(?: \(_ssl|$)", re.I | re.S)
_STATUS: Final = re.compile(r"^(\d{3})\b")
_UNRESOLVED: Final = re.compile(
    r"name or service not known|nodename nor servname|name resolution|no address associated", re.I
)


@dataclass(frozen=True, slots=True)
class Network:
    """Proxies by scheme of the requested address, exceptions, and trusted certificates.

    `ca_file` is trusted in addition. `cert_file` and `cert_dir` replace the usual certificates.
    """

    proxies: tuple[tuple[str, SecretStr, str], ...] = ()
    """Scheme, address of the proxy, and the name of its setting."""
    no_proxy: tuple[str, ...] = ()
    ca_file: Path | None = None
    cert_file: Path | None = None
    cert_dir: Path | None = None

    def proxy_for(self, address: str) -> "Proxy | None":
        """Return the proxy of the requests to an address, None to connect directly."""
        url = httpx.URL(address)
        found = next((entry for entry in self.proxies if entry[0] == url.scheme), None)
        if found is None or self._is_excepted(url):
            return None
        return Proxy(found[1], found[2])

    def _is_excepted(self, url: httpx.URL) -> bool:
        host = url.host.lower().rstrip(".")
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        for name in self.no_proxy:
            domain = name.lower().removeprefix("*.").lstrip(".").removesuffix(f":{port}")
            if name == "*" or host == domain.strip("[]") or host.endswith(f".{domain}"):
                return True
        try:
            host_ip = ip_address(url.host)
        except ValueError:
            return False
        return any(host_ip in network for network in _networks(self.no_proxy))

    @property
    def trust_names(self) -> str:
        """Which certificates are trusted, with the setting of each, for people."""
        usual = [
            f"{path} ({name})"
            for name, path in (("SSL_CERT_FILE", self.cert_file), ("SSL_CERT_DIR", self.cert_dir))
            if path is not None
        ]
        added = [] if self.ca_file is None else [f"{self.ca_file} (ALMANAC_CA_FILE)"]
        return " and ".join([*(usual or ["the public ones of certifi"]), *added])

    def trust(self) -> ssl.SSLContext:
        """Return the trusted certificates.

        Raises:
            OSError: a file can't be read, or has no certificate (ssl.SSLError).
        """
        return _trust(self.ca_file, self.cert_file, self.cert_dir)


DIRECT: Final = Network()
"""No proxy, and the public certificates: for the embedded sandbox, and where nothing is set."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and the setting that names it. Its text is its address without user and password."""

    address: SecretStr = field(repr=False)
    setting: str

    def __str__(self) -> str:
        return shown_proxy(self.address)

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """The address, the password, and the header field of the login: no text may show them."""
        return secrets_in(self.address)


def secrets_in(proxy: SecretStr) -> tuple[SecretStr, ...]:
    """Return the address of a proxy, its password, and the header value that is made of them.

    A user without a password is a token, so it is secret, too.
    """
    parts = urlsplit(proxy.get_secret_value())
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not user + password:
        return (proxy,)
    login = b64encode(f"{user}:{password}".encode()).decode()
    return (proxy, SecretStr(password or user), SecretStr(login))


def shown_proxy(address: SecretStr) -> str:
    """Return the address of a proxy without user and password."""
    parts = urlsplit(address.get_secret_value())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@cache
def _trust(ca_file: Path | None, cert_file: Path | None, cert_dir: Path | None) -> ssl.SSLContext:
    # Reading the public certificates takes 20 ms, once in a process.
    if cert_file is None and cert_dir is None:
        context = httpx.create_ssl_context(trust_env=False)
    else:
        context = ssl.create_default_context(cafile=cert_file, capath=cert_dir)
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


def _networks(names: tuple[str, ...]) -> Iterator[IPv4Network | IPv6Network]:
    """Yield the networks among the exceptions, as `10.0.0.0/8`."""
    for name in names:
        with suppress(ValueError):
            yield ip_network(name, strict=False)


def connection_error(
    error: Exception, call: str, message: str, proxy: Proxy | None
) -> Stop | Unreachable | None:
    """Return the error for a connection that a repetition would not make, None for another.

    `message` is the text of the error, without secrets.
    """
    through = "" if proxy is None else f" through the proxy {proxy} ({proxy.setting})"
    if isinstance(error, httpx.ProxyError):
        assert proxy is not None
        status = _STATUS.match(str(error))
        # A SOCKS proxy gives no status: it may not reach the service, or refuse the login.
        refuses = status is not None or "auth" in str(error).lower()
        if not refuses or (status is not None and int(status[1]) >= 500):
            return Unreachable(f"{call} got no connection{through}: it answered {message}")
        return proxy_refused(call, message, proxy, needs_login=str(error).startswith("407"))
    if (unverified := _UNVERIFIED.search(message)) is not None:
        return CertificateRejected(
            f"{call}{through}: the certificate can't be verified ({unverified[1]})",
            next_step=_advice(unverified[1]),
        )
    if "WRONG_VERSION_NUMBER" in message or "HTTP_REQUEST" in message:
        return CertificateRejected(
            f"{call}{through}: the other side does not speak TLS ({message})",
            next_step="Check whether the address begins with http:// or https://",
        )
    if proxy is not None and isinstance(error, httpx.ConnectError):
        if _UNRESOLVED.search(message):
            return ProxyRefused(
                f"{call}: the name of the proxy {proxy} can't be resolved ({message})",
                next_step=f"Check {proxy.setting}, or set ALMANAC_PROXY=none for no proxy",
            )
        return Unreachable(f"{call} got no connection{through} ({message})")
    return None


def proxy_refused(call: str, message: str, proxy: Proxy, *, needs_login: bool) -> ProxyRefused:
    """Return the error for a proxy that answers a request itself."""
    step = f"Check {proxy.setting}, or set ALMANAC_PROXY=none for no proxy"
    if needs_login:
        step = f"Set user and password in {proxy.setting}: http://USER:PASSWORD@HOST:PORT"
    return ProxyRefused(f"{call}: the proxy {proxy} refused it ({message})", next_step=step)


def _advice(reason: str) -> str:
    lowered = reason.lower()
    if "expired" in lowered or "not yet valid" in lowered:
        return (
            "The owner of the service has to renew its certificate; if its dates are right, "
            "correct the machine's clock"
        )
    if "mismatch" in lowered or "not valid for" in lowered:
        return "Use the host name for which the certificate was issued in the address"
    return (
        "If the service or a proxy has a certificate of your own authority, set ALMANAC_CA_FILE "
        "to a PEM file with the certificate of that authority"
    )
