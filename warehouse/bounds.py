"""Limits of a body, a page, a row and a value; what exceeds them is refused or set aside.

They are wide enough for every real catalog, and narrow enough to keep a process under a gigabyte
whatever is sent. Belongs here: the numbers. Does not: the code that enforces them.
"""

from typing import Final

PAGE_BYTES: Final = 64 << 20
"""Of a page, unpacked. A page is read whole."""
BODY_BYTES: Final = 8 << 30
"""Of an export, unpacked. An export is streamed."""
RATIO: Final = 200.0
"""Bytes unpacked to bytes packed. Text packs twenty to one, at most."""
RATIO_FROM_BYTES: Final = 1 << 20
"""The ratio is not checked below this size: a few repeated bytes compress very well."""
ELEMENTS: Final = 2_000_000
"""Commas and opening brackets of a JSON body, as a measure of the memory its values need."""
PAGE_ROWS: Final = 100_000
"""Of a page. Rows of an event that fill one are far fewer."""
ROW_BYTES: Final = 16 << 20
"""Of one row in canonical form."""
RECORD_CHARS: Final = 16 << 20
"""Of one CSV record; if it is longer, the rest of the file is one rejected row."""
REJECTS: Final = 20_000
"""Rejected rows of one batch that are kept. With more, the batch is quarantined."""
DEPTH: Final = 512
"""Objects and arrays inside each other."""
COINS: Final = 10_000
"""Coins, or categories, of one event."""
KEYS: Final = 1_000
"""Unknown fields of one row, and columns of a CSV file."""
INTEGER_DIGITS: Final = 400
"""A longer integer is read as infinite: Python takes seconds for some thousand digits."""
