"""Removes a secret from texts, bodies, and what the HTTP libraries log."""

import logging
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from pydantic import SecretStr

from warehouse.landing.batches import KEY_MARK

LEAST_CHARS: Final = 12
"""A shorter key may be a part of ordinary data: it is removed from messages, not from bodies."""
_LIBRARIES: Final = (
    *("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpcore.socks"),
)
"""The loggers of the HTTP libraries: on DEBUG they log the header fields of each response."""


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
