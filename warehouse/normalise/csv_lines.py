"""The records of a CSV file as lines of bytes, found without reading a cell.

Only for files whose records are certain from their bytes: each quote begins or ends a cell or is
doubled, line ends are LF or CRLF, and there are no blank lines. A record is then the same bytes in
every file, so the hash of its line tells whether it was read before.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_LF, _CR, _QUOTE = b'\n\r"'
LARGE: Final = 1 << 28
"""Bytes of a file that is read in another way, since its lines would fill the memory."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The bytes of a file, and where its records begin; `bounds` has one more, the end."""

    data: bytes
    bounds: Any

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def table(self) -> "pa.Table":
        """Return the place and the bytes of each record, without a copy of the bytes."""
        import numpy as np
        import pyarrow as pa

        offsets = pa.py_buffer(self.bounds.astype(np.int32))
        buffers = [None, offsets, pa.py_buffer(self.data)]
        lines = pa.Array.from_buffers(pa.binary(), len(self), buffers)
        return pa.table({"place": numbers(np.arange(len(self))), "line": lines})

    def take(self, places: Any) -> bytes:
        """Return the lines of some records, in order."""
        if len(places) == len(self):
            return self.data[self.bounds[0] :]
        starts, ends = self.bounds[places].tolist(), self.bounds[places + 1].tolist()
        data = memoryview(self.data)
        taken = [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
        if taken and not taken[-1].endswith(b"\n"):
            taken[-1] += b"\n"
        return b"".join(taken)


def numbers(values: Any) -> "pa.Array":
    """Return whole numbers of numpy as an array of Arrow; `pa.array` would import pandas."""
    import pyarrow as pa

    kind = pa.uint64() if values.dtype.kind == "u" else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def split(data: bytes, skip: int, delimiter: str) -> Lines | None:
    """Return the records behind the first `skip` lines; None if they are not certain."""
    import numpy as np

    if len(data) > LARGE or b"\0" in data:
        return None
    cells = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(cells == _LF)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data) - 1)
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return None
    if len(ends) <= skip:
        return None
    start = ends[skip - 1] + 1 if skip else 0
    if b'"' in data:
        quotes = np.flatnonzero(cells == _QUOTE)
        if len(quotes) % 2 or not _are_regular(cells, quotes, ord(delimiter)):
            return None
        is_inside = np.searchsorted(quotes, ends) % 2 == 1
        if is_inside[:skip].any():
            return None
        ends = ends[~is_inside]
    bounds = np.concatenate(([start], ends[skip:] + 1))
    lengths = np.diff(bounds)
    is_blank = (lengths == 1) | ((lengths == 2) & (cells[bounds[:-1]] == _CR))
    return None if is_blank.any() else Lines(data, bounds)


def _are_regular(cells: Any, quotes: Any, delimiter: int) -> bool:
    """Whether each quote begins or ends a cell, or is doubled."""
    import numpy as np

    opening, closing = quotes[::2], quotes[1::2]
    before = cells[opening - 1]
    after = cells[np.minimum(closing + 1, len(cells) - 1)]
    begins = np.isin(before, (delimiter, _LF, _QUOTE)) | (opening == 0)
    ends = np.isin(after, (delimiter, _LF, _CR, _QUOTE)) | (closing == len(cells) - 1)
    return bool(begins.all() and ends.all())
