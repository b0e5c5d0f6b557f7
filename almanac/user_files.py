"""The user's paths and Parquet files, the kind of a file, and the names of columns."""

import lzma
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from almanac.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""`Path` makes one slash of two. A scheme of one letter would be a drive of Windows."""


def local_path(given: Any, name: str) -> Path:
    """Return a path, with `~` for the folder of the user.

    Raises:
        InvalidArgument: it is not a path, or is an address such as `s3://`. The message
            leaves out the rest of the address, which may hold a password.
    """
    if not isinstance(given, str | os.PathLike) or "\0" in os.fsdecode(given):
        raise InvalidArgument(f"{name}={given!r} is not a path; expected a text or a Path")
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


def plain_name(name: str) -> str:
    """Return the letters and digits of a name, in lower case; letters of full width are ASCII."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in text if letter.isalnum())


def column_named(names: Iterable[str], wanted: str, where: str) -> str | None:
    """Return the column of a name: the exact name, else a name that is spelled alike.

    Raises:
        InvalidArgument: several columns are spelled alike.
    """
    listed = list(names)
    if listed.count(wanted) == 1:
        return wanted
    alike = [name for name in listed if plain_name(name) == plain_name(wanted)]
    if len(alike) > 1:
        shown = ", ".join(map(repr, alike))
        raise InvalidArgument(f"{where} has {len(alike)} columns for {wanted}: {shown}. Keep one")
    return alike[0] if alike else None


PARQUET: Final = (".parquet", ".pq")
TEXT: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
KINDS: Final = {
    b"PK\x03\x04": "an Excel workbook or another zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"PAR1": "Parquet; its name has to end in .parquet",
    b"ARROW1": "an Arrow file",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it",
    b"SQLite format 3": "an SQLite database",
    b"%PDF-": "a PDF",
    b"<!DOCTYPE": "HTML",
    b"<html": "HTML",
    b"<?xml": "XML",
    b'{"': "JSON",
    b"[{": "JSON",
}
"""What a file is by its first bytes, if it is not text."""


def open_parquet(path: Path, **options: Any) -> "pq.ParquetFile":
    """Open a Parquet file, with options of pyarrow.

    Raises:
        InvalidArgument: it is empty, cut, or no Parquet file; the message names it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}")
    try:
        return pq.ParquetFile(path, **options)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        with path.open("rb") as file:
            head = file.read(64)
        what = "is empty" if not head else f"is damaged: {error}"
        if head and not head.startswith(b"PAR1"):
            kind = next((kind for magic, kind in KINDS.items() if head.startswith(magic)), None)
            what = f"is {kind}" if kind else "is not a Parquet file"
        elif head:
            what = "is cut or damaged: the end of a Parquet file is missing"
        raise InvalidArgument(f"{path} {what}; expected a Parquet file") from error


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors about the content of a file into an error that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, EOFError, OSError, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InvalidArgument(f"{path} can't be read: {error}") from error
