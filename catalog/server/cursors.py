"""Cursors: the key of the last row sent, bound to the list and its filters by a digest.

A cursor is not signed: a forged position shows only rows that its key may read. Rows that are added
or removed between two pages never shift a page, and a cursor survives a restart.
"""

import base64
import binascii
import hashlib
from collections.abc import Hashable
from typing import TypeVar

import msgspec

from catalog.contract.errors import InvalidCursor

KeyT = TypeVar("KeyT")
_DIGEST_BYTES = 8


def write_cursor(list_name: str, filters: Hashable, key: tuple[float | int | str, ...]) -> str:
    payload = msgspec.msgpack.encode((_digest(list_name, filters), *key))
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


def read_cursor(cursor: str, list_name: str, filters: Hashable, form: type[KeyT]) -> KeyT:
    """Return the key inside, decoded to the tuple type `form`.

    Raises:
        InvalidCursor: it is not a cursor, or was made for another list or other filters.
    """
    try:
        payload = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        digest, *key = msgspec.msgpack.decode(payload)
        found = msgspec.convert(tuple(key), form)
    except (binascii.Error, ValueError, TypeError, msgspec.MsgspecError) as error:
        raise InvalidCursor("The cursor was not issued by this service") from error
    if digest != _digest(list_name, filters):
        raise InvalidCursor("The cursor belongs to another list or to other filters")
    return found


def _digest(list_name: str, filters: Hashable) -> bytes:
    text = repr((list_name, filters)).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
