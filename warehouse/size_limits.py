"""Limits of a body, a page, a row and a value; input that exceeds them is refused or quarantined.

They are wide enough for every real catalog, and narrow enough to keep a process under a gigabyte
for any input.
"""

from typing import Final

PAGE_BYTES: Final = 64 << 20
"""Size of a decompressed page. A page is read as a whole."""
BODY_BYTES: Final = 8 << 30
"""Size of a decompressed export. An export is streamed."""
RATIO: Final = 200.0
"""Decompressed bytes for each compressed byte. Text reaches at most twenty."""
RATIO_FROM_BYTES: Final = 1 << 20
"""The ratio is not checked below this size: a few repeated bytes compress very well."""
ELEMENTS: Final = 2_000_000
"""Commas and opening brackets of a JSON body, an estimate of the memory that its values need."""
PAGE_ROWS: Final = 100_000
"""Rows of a page. A page filled with events has far fewer."""
ROW_BYTES: Final = 16 << 20
"""Size of one row in canonical form."""
REJECTS: Final = 20_000
"""Rejected rows of one batch that are kept. With more, the batch is quarantined."""
DEPTH: Final = 512
"""Nesting of objects and arrays."""
COINS: Final = 10_000
"""Number of coins, or of categories, of one event."""
KEYS: Final = 1_000
"""Number of unknown fields of one row, and of columns of a CSV file."""
INTEGER_DIGITS: Final = 400
"""A longer integer is read as infinite: Python takes seconds to parse some thousand digits."""
