"""What goes wrong with data at rest, sorted by what the caller does.

WarehouseError
├── LandingError      a batch that can't be landed or read; nothing else is touched
│   └── DamagedBody   bytes that are not those that were landed
├── UnknownBatch      no batch has this id
├── HomeRefused       the folder is another source's, or a newer Almanac's
└── LakeDamaged       a file of the lake can't be read; `almanac replay` makes it again
"""


class WarehouseError(Exception):
    """Data at rest is not as it should be. The message says what state is left."""


class LandingError(WarehouseError):
    """A batch that can't be landed or read."""


class DamagedBody(LandingError):
    """The bytes of a batch are not those that were landed: the disk or a hand changed them."""


class UnknownBatch(WarehouseError):
    """No batch has this id."""


class HomeRefused(WarehouseError):
    """The home can't be used as it was asked for; it was left as it is."""


class LakeDamaged(WarehouseError):
    """A file of the lake is not what was written; landing still has all of it."""
