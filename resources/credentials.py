"""Address and key of a service: checked before anything is sent, and the key removed from texts,
bodies, and what the HTTP libraries log."""

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from pydantic import SecretStr

from catalog.contract import constants
from warehouse.landing.batches import KEY_MARK

_USUAL: Final = re.compile(r"https?://[a-z][a-z0-9.-]*(:[1-9][0-9]{3})?(/[A-Za-z0-9_-]+)*/?")
"""Addresses in normal form: parsing does not change their text."""
LEAST_CHARS: Final = 12
"""A shorter key may be a part of ordinary data: it is removed from messages, not from bodies."""
_LIBRARIES: Final = (
    *("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpcore.socks"),
)
"""The loggers of the HTTP libraries: on DEBUG they log the header fields of each response."""


def check_base_url(text: str) -> str:
    """Return the base address without `/v2` and without a slash at its end.

    Raises:
        ValueError: it is not an http(s) address, or has a user, query or fragment.
    """
    stripped = text.strip()
    usual = stripped if _USUAL.fullmatch(stripped) else _normalised(stripped)
    return usual.rstrip("/").removesuffix(constants.VERSION_PATH).rstrip("/")


def _normalised(text: str) -> str:
    import httpx

    try:
        url: httpx.URL | None = httpx.URL(text)
    except httpx.InvalidURL:
        url = None  # Its message may have a part of a password.
    if url is None or url.scheme not in ("http", "https") or not url.host:
        raise ValueError("the base address must be of the form https://host[:port][/path]")
    if "@" in text or url.query or url.fragment:
        raise ValueError("the base address must have no user, query or fragment")
    return str(url)


def check_key(key: SecretStr | str) -> SecretStr:
    """Return the key, wrapped and without spaces around it.

    Raises:
        ValueError: it is empty or not allowed in a header; the message does not show it.
    """
    text = (key.get_secret_value() if isinstance(key, SecretStr) else key).strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(
            "the API key is empty, or has spaces or characters that are not allowed in a "
            "header; copy it again from the developer dashboard"
        )
    return SecretStr(text)


class Redactor:
    """Replaces a secret, plain or URL-encoded, by a placeholder. No repr shows the secret."""

    def __init__(self, secret: SecretStr) -> None:
        text = secret.get_secret_value()
        self._forms = tuple(dict.fromkeys((text, quote(text, safe=""))))
        self._is_short = len(text) < LEAST_CHARS
        self._held_bytes = max(map(len, self._forms)) - 1

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, KEY_MARK)
        return text

    def body(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a body without the secret, even where the secret spans two chunks."""
        if self._is_short:
            yield from pieces
            return
        held = b""
        for piece in pieces:
            held += piece
            for form in self._forms:
                held = held.replace(form.encode(), KEY_MARK.encode())
            yield held[: -self._held_bytes]
            held = held[-self._held_bytes :]
        yield held


_concealed: dict[SecretStr, Redactor] = {}


def _conceal(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    for redact in tuple(_concealed.values()):
        text = redact(text)
    record.msg, record.args = text, ()
    return True


def conceal_in_logs(secret: SecretStr) -> None:
    """Remove a secret from what the HTTP libraries log, from now on."""
    _concealed[secret] = Redactor(secret)
    for name in _LIBRARIES:
        logging.getLogger(name).addFilter(_conceal)
