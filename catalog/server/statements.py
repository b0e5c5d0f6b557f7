"""Named SQL statements, read from a `.sql` file of a package."""

import re
from functools import cache
from importlib import resources
from typing import Final

_NAMED: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def read_statements(package: str, file: str) -> dict[str, str]:
    """Return the statements of a file by name, in their order; each begins `-- name: NAME`."""
    text = (resources.files(package) / file).read_text("utf-8")
    _, *parts = _NAMED.split(text)
    return {name: part.strip() for name, part in zip(parts[::2], parts[1::2], strict=True)}
