"""The golden files: the expanded text of each statement that lists columns, one for each SQL file.

`python -m tests.warehouse.schema.snapshots` rewrites them, and removes those without an SQL file.
They have no comments except the names of the statements.
"""

from pathlib import Path
from typing import Final

from warehouse.schema.columns import GROUPS
from warehouse.sql import expand, statements_in

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "tests" / "warehouse" / "sql_snapshots"


def snapshots() -> dict[str, str]:
    """Return the expected content of the golden files, by name."""
    found = {}
    for path in sorted((ROOT / "warehouse").rglob("*.sql")):
        statements = [
            f"-- name: {name}\n{_code(expand(text, GROUPS))}\n"
            for name, text in statements_in(path.read_text())
            if "{each " in text
        ]
        if statements:
            found[_name_of(path)] = "\n".join(statements)
    return found


def stored() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(FOLDER.glob("*.sql"))}


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = snapshots()
    for name in stored().keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)


def _name_of(path: Path) -> str:
    """Return `history_versions.sql` for `warehouse/history/sql/versions.sql`."""
    return f"{path.parent.parent.name}_{path.name}"


def _code(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip()


if __name__ == "__main__":
    write()
