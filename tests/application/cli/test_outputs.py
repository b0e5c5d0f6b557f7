"""Commands that write a file where the caller says: none of them writes over a part of a home."""

import hashlib
from pathlib import Path

import pytest

from tests.almanac.publications import publish_two_events
from tests.pipeline.conftest import Almanac
from warehouse.home import Home

COMMANDS = {
    "sql": ("sql", "SELECT 1 AS a", "--format", "json", "--output"),
    "export": ("export", "--output"),
    "report": ("report", "--output"),
    "audit": ("audit", "signals.csv", "--html"),
}
PARTS = (
    *("warehouse.duckdb", "home.json", "landing/batches/x.json", "landing/new"),
    *("parquet/events/x", "state/merge.lock", "landing/../warehouse.duckdb"),
    *("inbox/x", "checkpoints/x.duckdb", "dagster/dagster.yaml", ".next-warehouse.duckdb"),
    *("../link", "../folder/batches/x.json", "../hard"),
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    root = tmp_path / "home"
    root.mkdir()
    publish_two_events(root)
    Home(root).claim("sandbox:1")
    for part in ("landing/batches/x.json", "parquet/events/x", "state/merge.lock"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).write_text("kept")
    for folder in ("inbox", "checkpoints", "dagster"):
        (root / folder).mkdir()
    (tmp_path / "link").symlink_to("home/warehouse.duckdb")
    (tmp_path / "folder").symlink_to("home/landing")
    (tmp_path / "hard").hardlink_to(root / "warehouse.duckdb")
    (tmp_path / "signals.csv").write_text("event_id,decided_at\n")
    return root


def read(root: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.parent.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_to_a_part_of_a_home(almanac: Almanac, home: Path, command: str) -> None:
    before = read(home)
    for part in PARTS:
        done = almanac(*COMMANDS[command], str(home / part), code=2, home=str(home))
        assert "is a part of a home" in done.stderr, part
        assert read(home) == before, part


@pytest.mark.parametrize("place", ["mine.json", "../mine.json"])
def test_a_file_of_the_user_is_replaced_also_in_the_folder_of_the_home(
    almanac: Almanac, home: Path, place: str
) -> None:
    (home / place).write_text("before")
    almanac(*COMMANDS["sql"], str(home / place), home=str(home))
    assert (home / place).read_text() == '[\n\t{"a":1}\n]\n'


def test_a_published_file_outside_of_a_home_is_not_replaced(almanac: Almanac, home: Path) -> None:
    alone = home.parent / "copy.duckdb"
    alone.write_bytes((home / "warehouse.duckdb").read_bytes())
    almanac(*COMMANDS["sql"], str(alone), "--home", str(alone), code=2)
    assert alone.read_bytes() == (home / "warehouse.duckdb").read_bytes()
