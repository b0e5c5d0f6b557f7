"""Removes the API key from all that a service repeats, before it is stored or reported.

Belongs here: the spellings in which a key is recognised, and a reader of streams. Does not: where
it is applied (transport.py for headers, bodies.py for bodies, calls.py for errors).
"""

import base64
import html
import json
import logging
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pydantic import SecretStr

from warehouse.landing.batches import KEY_MARK

if TYPE_CHECKING:
    import httpx

REDACTOR: Final = "almanac.redactor"
"""Response extension: the redactor of the key that the request was sent with."""
LEAST_CHARS: Final = 12
"""A shorter key may be a part of ordinary data: it is removed only from messages, unescaped."""
_CUT_CHARS: Final = 8
"""So many characters of a key at the end of a body are the beginning of a truncated key."""
_THOROUGH_BYTES: Final = 1 << 18
"""Beyond it a body is searched as data is: the message of an error is at its beginning."""
_BETWEEN: Final = r"[\s\u00ad\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]{0,64}"
"""White space and marks without a width, which are invisible between two characters. The run is
limited, as all here: else a body that only repeats its beginning would take hours to search."""
_BETWEEN_BYTES: Final = (
    rb"(?:\s|\xc2\xad|\xe1\xa0\x8e|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xa9]|\xef\xbb\xbf)"
    rb"{0,64}"
)
_ESCAPING: Final = rb"\%&"
"""Every escape of a character begins with one of these."""
_NO_LETTERS: Final = bytes(set(range(256)) - set(b"abcdefghijklmnopqrstuvwxyz0123456789"))


class Redactor:
    """Replaces one key by a mark. Thread-safe; neither its repr nor an error shows the key.

    It recognises, in upper or lower case: the key itself, each of its characters percent-encoded,
    as an HTML entity or a JSON escape (in a message also split by invisible characters), and the
    whole key in hex or base64, wherever in the encoded bytes it begins.
    """

    def __init__(self, key: SecretStr) -> None:
        text = key.get_secret_value()
        self._exact = text
        self.is_short = len(text) < LEAST_CHARS
        usual = _escaped(text) | _encoded(text)
        literals = usual | _encoded(text.lower()) | _encoded(text.upper())
        # The longest first: one may be the beginning of another.
        ordered = sorted({literal.lower() for literal in literals}, key=len, reverse=True)
        self._literals = tuple(literal.encode() for literal in ordered)
        self._usual = tuple({literal.lower().encode() for literal in usual})
        self.longest = len(ordered[0])
        self._escapes = [_any_escape(character) for character in text]
        self._letters = tuple({_letters_of(literal) for literal in self._literals})

    # Each pattern takes 20 ms to compile, and most clients never get a response that needs one.
    @cached_property
    def _in_text(self) -> re.Pattern[str]:
        literals = (re.escape(literal.decode()) for literal in self._literals)
        return re.compile("|".join((_BETWEEN.join(self._escapes), *literals)), re.IGNORECASE)

    @cached_property
    def _in_bytes(self) -> re.Pattern[bytes]:
        escapes = (escape.encode() for escape in self._escapes)
        literals = map(re.escape, self._literals)
        return re.compile(b"|".join((_BETWEEN_BYTES.join(escapes), *literals)), re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """Return a text without the key."""
        if self.is_short:
            return text.replace(self._exact, KEY_MARK)
        if text.isascii() and not self._may_be_in(text.encode()):
            return text
        return self._in_text.sub(KEY_MARK, text)

    def headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the fields of a response's head without the key, in names as in values."""
        return [(self.field(name), self.field(value)) for name, value in headers]

    def field(self, value: bytes) -> bytes:
        """Return a part of a response's head without the key."""
        if self.is_short or not self._may_be_in(value):
            return value
        return self._in_bytes.sub(KEY_MARK.encode(), value)

    def body(self, *, is_data: bool) -> "BodyRedactor":
        """Return a reader of a body in pieces; HTML is never data.

        In a body that is not data every spelling is searched; in data, which may be large, only
        those that a service produces automatically.
        """
        return BodyRedactor(self, is_data=is_data)

    def found_in(self, data: bytes, *, is_data: bool) -> Sequence[re.Match[bytes]]:
        """Return where the key is in some bytes, in order."""
        if self.is_short:
            return ()
        if is_data:
            lowered = data.lower()
            if not any(literal in lowered for literal in self._usual):
                return ()
        elif not self._may_be_in(data):
            return ()
        return tuple(self._in_bytes.finditer(data))

    def _may_be_in(self, data: bytes) -> bool:
        """Whether the key may be in some bytes, by a search without a pattern.

        False is certain: without an escape a key has its own letters and digits, in this order.
        """
        if any(mark in data for mark in _ESCAPING):
            return True
        letters = _letters_of(data)
        return any(own in letters for own in self._letters)

    def cut_off_at_end(self, data: bytes) -> int:
        """Return how many bytes at the end are the beginning of a truncated key."""
        if self.is_short:
            return 0
        end = data[-self.longest :].lower()
        for size in range(min(len(end), self.longest), _CUT_CHARS - 1, -1):
            if any(literal.startswith(end[-size:]) for literal in self._literals):
                return size
        return 0


@lru_cache(maxsize=8)
def redactor_for(key: SecretStr) -> Redactor:
    """Return the redactor of a key. Its patterns are compiled at the first use."""
    return Redactor(key)


_LIBRARIES: Final = (
    *("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy"),
    "httpcore.socks",
)
"""The loggers of the HTTP libraries: on DEBUG they log the header fields of each response."""


class _LogFilter(logging.Filter):
    """Removes secrets from the records of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.redactors: dict[SecretStr, Redactor] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        for redactor in tuple(self.redactors.values()):
            text = redactor(text)
        record.msg, record.args = text, ()
        return True


_LOG_FILTER: Final = _LogFilter()


def conceal_in_logs(*secrets: SecretStr | None) -> None:
    """Remove these secrets from what the HTTP libraries log, from now on."""
    for secret in secrets:
        if secret is not None and secret.get_secret_value():
            _LOG_FILTER.redactors.setdefault(secret, redactor_for(secret))
    for name in _LIBRARIES:
        logging.getLogger(name).addFilter(_LOG_FILTER)


class BodyRedactor:
    """One body, in pieces. Holds back a possible beginning of a key until more arrives."""

    def __init__(self, redactor: Redactor, *, is_data: bool) -> None:
        self._redactor = redactor
        self._is_data = is_data
        self._held = b""
        self._passed_bytes = 0

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on."""
        data = self._held + piece
        if not self._passed_bytes and data.lstrip()[:1] == b"<":
            self._is_data = False
        return self._passed(data, max(0, len(data) - self._redactor.longest + 1))

    def finish(self) -> bytes:
        """Return the rest, also of a truncated body."""
        held = self._held
        rest = self._passed(held, len(held))
        cut_off = self._redactor.cut_off_at_end(rest)
        return rest[: len(rest) - cut_off] + KEY_MARK.encode() if cut_off else rest

    def _passed(self, data: bytes, upto: int) -> bytes:
        passed: list[bytes] = []
        at = 0
        quickly = self._is_data or self._passed_bytes > _THOROUGH_BYTES
        for match in self._redactor.found_in(data, is_data=quickly):
            if match.start() >= upto:
                break
            passed += (data[at : match.start()], KEY_MARK.encode())
            at = match.end()
        end = max(at, upto)
        self._held = data[end:]
        self._passed_bytes += end
        return b"".join((*passed, data[at:end]))


def find_redactor(response: "httpx.Response") -> Redactor | None:
    """Return the redactor of a response, None if the response is not from our transport."""
    found = response.extensions.get(REDACTOR)
    return found if isinstance(found, Redactor) else None


def _letters_of(data: bytes) -> bytes:
    """Return the letters, in lower case, and the digits of some bytes."""
    return data.lower().translate(None, _NO_LETTERS)


def _any_escape(character: str) -> str:
    """Return a pattern of all spellings of one character."""
    found = [re.escape(character)]
    if character == '"':
        found.insert(0, r'\\{0,8}""')
    if not character.isalnum():
        found.append(r"\\{1,8}" + re.escape(character))
    named = html.escape(character)
    if named != character:
        found.append(re.escape(named))
    for variant in sorted({character.lower(), character.upper()}):
        code = f"{ord(variant):02x}"
        found += [f"%(?:25){{0,4}}{code}", rf"\\{{1,8}}(?:u00|x){code}"]
        found += [f"&#(?:0{{0,6}}{ord(variant)}|x0{{0,6}}{code});"]
    return f"(?:{'|'.join(found)})"


def _escaped(key: str) -> set[str]:
    """Return the key as programs escape it, and with every character escaped."""
    every = ("%{:02x}", r"\u00{:02x}", "&#{};", "&#x{:x};")
    found = {
        key,
        quote(key, safe=""),
        quote(quote(key, safe=""), safe=""),
        json.dumps(key)[1:-1],
        json.dumps(key)[1:-1].replace("/", r"\/"),
        html.escape(key),
        *("".join(form.format(ord(character)) for character in key) for form in every),
    }
    # Each of them also as in a field of a CSV.
    return found | {literal.replace('"', '""') for literal in found}


def _encoded(key: str) -> set[str]:
    """Return the key in hex, and in base64 for each of the three places where it may begin."""
    found = {key.encode().hex()}
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        data = b"\0" * before + key.encode()
        whole = base64.b64encode(data).rstrip(b"=").decode()
        # The first and last characters also have bits of the bytes beside the key.
        own = whole[mixed : len(whole) - (1 if len(data) % 3 else 0)]
        found |= {own, own.replace("+", "-").replace("/", "_")}
    return found
