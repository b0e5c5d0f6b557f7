"""Counts the records of a CSV stream (RFC 4180) without keeping them.

Quotes are read as in Python's csv; bytes may be fed in chunks of any size. Line ends are LF, CRLF
or CR; a blank line is not a record; a byte order mark at the start is skipped.
"""

import codecs
from typing import Final

_FIELD_ENDS: Final = b",\n\r"
_NO_SIGNS: Final = bytes(set(range(256)) - set(b'"\n\r\0'))


class RecordCounter:
    """Counts records, header included: feed it the bytes, then read the attributes.

    `records` counts those that end with a line end; `finish` adds an open last record.
    """

    def __init__(self) -> None:
        self.records = 0
        self.last_fields = 0
        """Fields of the last record."""
        self.in_quotes = False
        self.ends_with_line_end = True
        self._head: bytes | None = b""
        self._open = False
        self._commas = 0
        self._at_field_start = True
        self._just_closed = False

    def feed(self, data: bytes) -> None:
        if self._head is not None:
            self._head += data
            if len(self._head) < len(codecs.BOM_UTF8):
                return
            data, self._head = self._head.removeprefix(codecs.BOM_UTF8), None
        self._feed(data)

    def finish(self) -> None:
        """End the input: an open record is counted."""
        if self._head is not None:
            data, self._head = self._head, None
            self._feed(data)
        self.ends_with_line_end = not self._open
        if self._open:
            self._close_record()

    def _feed(self, data: bytes) -> None:
        for place, text in enumerate(data.split(b'"')):
            if place:
                self._quote()
            if text and not self.in_quotes:
                self._unquoted(text)

    def _quote(self) -> None:
        """Handle a quote, which opens or closes a field, doubles a closing quote, or is text."""
        self._open = True
        if self.in_quotes:
            self.in_quotes, self._just_closed = False, True
        else:
            self.in_quotes = self._at_field_start or self._just_closed
            self._just_closed = False
        self._at_field_start = False

    def _unquoted(self, text: bytes) -> None:
        self._just_closed = False
        self._at_field_start = text[-1] in _FIELD_ENDS
        lines = text.splitlines()
        self._commas += lines[0].count(b",")
        self._open = self._open or bool(lines[0])
        ended = text[-1] in b"\n\r"
        if len(lines) == 1 and not ended:
            return
        if self._open:
            self._close_record()
        whole = [line for line in (lines[1:] if ended else lines[1:-1]) if line]
        if whole:
            self.records += len(whole)
            self.last_fields = whole[-1].count(b",") + 1
        if not ended:
            self._open, self._commas = True, lines[-1].count(b",")

    def _close_record(self) -> None:
        self.records += 1
        self.last_fields = self._commas + 1
        self._open, self._commas = False, 0


class QuickCounter:
    """The same count at ten times the speed, from line ends and the parity of quotes alone.

    It is wrong if a quote is inside an unquoted field, and it counts blank lines. Compare it with
    another count, and use RecordCounter if they differ.
    """

    def __init__(self) -> None:
        self.has_nul = False
        self._ends = 0
        self._inside = 0
        self._last = b""

    def feed(self, data: bytes) -> None:
        if not data:
            return
        kept = data.translate(None, _NO_SIGNS)
        self.has_nul = self.has_nul or b"\0" in kept
        pieces = kept.split(b'"')
        outside = b"".join(pieces[self._inside :: 2])
        self._ends += outside.count(b"\n") + outside.count(b"\r") - outside.count(b"\r\n")
        if not self._inside and self._last == b"\r" and data[:1] == b"\n":
            self._ends -= 1
        self._inside ^= (len(pieces) - 1) & 1
        self._last = data[-1:]

    @property
    def records(self) -> int:
        """Records so far, including an open last one."""
        return self._ends + (self._last not in (b"", b"\n", b"\r"))
