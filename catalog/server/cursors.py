"""Opaque cursors: the key of the last row sent, bound to its filters and signed.

Keyset-based, so rows added or removed between two pages never shift a page. Stateless: only
the signing key must survive a restart.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Hashable
from typing import TypeVar

import msgspec

from catalog.contract.errors import InvalidCursor

KeyT = TypeVar("KeyT")
_TAG_BYTES = 16
_DIGEST_BYTES = 8


class CursorSigner:
    """Seals and opens cursors with one secret."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError(f"a cursor secret needs at least 16 bytes, got {len(secret)}")
        self._secret = secret

    def __repr__(self) -> str:
        return "CursorSigner(secret=...)"

    def seal(self, list_name: str, filters: Hashable, key: tuple[float | int | str, ...]) -> str:
        payload = msgspec.msgpack.encode((_binding(list_name, filters), *key))
        return base64.urlsafe_b64encode(self._tag(payload) + payload).decode().rstrip("=")

    def open(self, cursor: str, list_name: str, filters: Hashable, form: type[KeyT]) -> KeyT:
        """Return the key inside, decoded to the tuple type `form`.

        Raises:
            InvalidCursor: not sealed here, altered, or made for another list or other filters.
        """
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidCursor("The cursor is not one that this service gave out") from error
        tag, payload = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
        # The text is compared too: base64 has unused bits, and an altered cursor must not pass.
        canonical = base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        if not hmac.compare_digest(tag, self._tag(payload)) or canonical != cursor:
            raise InvalidCursor("The cursor is not one that this service gave out")
        binding, *key = msgspec.msgpack.decode(payload)
        if binding != _binding(list_name, filters):
            raise InvalidCursor("The cursor belongs to another list or to other filters")
        return msgspec.convert(tuple(key), form)

    def _tag(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")[:_TAG_BYTES]


def _binding(list_name: str, filters: Hashable) -> bytes:
    return hashlib.blake2b(repr((list_name, filters)).encode(), digest_size=_DIGEST_BYTES).digest()
