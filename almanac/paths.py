"""Paths as people give them: local files, and no addresses.

Belongs here: reading an argument that names a file or a folder. Does not: opening it.
"""

import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from almanac.errors import InvalidArgument

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""`Path` makes one slash of two. A scheme of one letter would be a drive of Windows."""


def local_path(given: Any, name: str) -> Path:
    """Return a path, with `~` for the folder of the user.

    Raises:
        InvalidArgument: it is not a path, or is an address such as `s3://`. The message
            leaves out the rest of the address, which may hold a password.
    """
    if not isinstance(given, str | os.PathLike) or "\0" in os.fsdecode(given):
        raise InvalidArgument(f"{name}={given!r} is no path; expected a text or a Path")
    text = os.fsdecode(given)
    found = _ADDRESS.match(text)
    if found is None or Path(text).exists():
        return Path(text).expanduser()
    if found[1].lower() == "file":
        path = unquote(text[found.end() :])
        raise InvalidArgument(f"{name} is a file:// address; expected the path alone: /{path}")
    raise InvalidArgument(
        f"{name} is an address ({found[1].lower()}://…); expected a path. Almanac reads and writes "
        "local files only: download or mount it, and give the path of the copy. Nothing was read "
        "or written."
    )
