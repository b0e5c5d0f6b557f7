"""The wheel has the package alone, and works beside modules of the user with our other names."""

import email
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from tests.almanac.packaging.wheel import ROOT, folder_of_a_user, make_wheel
from tests.almanac.publications import publish_by_hand
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.answers.handmade import Known

HEAVY: Final = (
    "pandas",
    "numpy",
    "pyarrow",
    "scipy",
    "polars",
    "matplotlib",
    "dagster",
    "typer",
    "warehouse",
)
AT: Final = datetime(2026, 3, 1, 6, tzinfo=UTC)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with ZipFile(make_wheel(tmp_path_factory.mktemp("dist"))) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_has_the_package_and_nothing_else(unpacked: Path) -> None:
    found = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    package = {path for path in found if path.parts[0] == "almanac"}
    source = (path for path in (ROOT / "almanac").rglob("*") if path.is_file())
    assert package == {path.relative_to(ROOT) for path in source if path.suffix != ".pyc"}
    assert Path("almanac/py.typed") in package
    assert {path.suffix for path in package} == {".html", ".py", ".sql", ".typed"}
    beside = {path.name for path in found - package}
    assert beside == {"METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt"}


def test_the_metadata_names_the_few_dependencies_and_no_address(unpacked: Path) -> None:
    (file,) = unpacked.glob("*.dist-info/METADATA")
    metadata = email.message_from_bytes(file.read_bytes())
    assert metadata["Name"] == "crypto-almanac"
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    needed = {name.replace(" ", "").replace("'", '"') for name in metadata.get_all("Requires-Dist")}
    assert needed == {
        *("duckdb>=1.4", "jinja2>=3.1", "pandas>=2.2", "pyarrow>=17", "rich>=14", "typer>=0.20"),
        *('icalendar>=7.0;extra=="calendar"', 'mcp>=2.0;extra=="mcp"'),
        'psycopg[binary]>=3.2;extra=="lake"',
        *('pyiceberg>=0.12;extra=="lake"', 'sqlalchemy>=2.0;extra=="lake"'),
        'matplotlib>=3.9;extra=="plot"',
        'polars>=1.0;extra=="polars"',
        'scipy>=1.13;extra=="study"',
    }
    assert (metadata.get_all("Project-URL"), metadata["Home-page"]) == (None, None)


def run(code: str, folder: Path, unpacked: Path, *words: str) -> str:
    """Run code in a folder, with the unpacked wheel before this checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_questions_are_answered_beside_modules_of_the_user_and_the_import_is_light(
    unpacked: Path, tmp_path: Path
) -> None:
    folder = folder_of_a_user(tmp_path)
    versions = [Known(event_id="a", title="a title", known_from=AT, date=AT.replace(month=4))]
    publish_by_hand(folder / "warehouse.duckdb", versions, pulls=[AT])
    code = (
        "import sys, almanac\n"
        "print(almanac.__file__)\n"
        "dir(almanac), almanac.Database, almanac.open\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "with almanac.open('.') as db:\n"
        "    print(db.upcoming(as_of='2026-03-02', within='90d').df()['title'].tolist())\n"
        "from almanac import command_line\n"
        # Here the application is installed.
        "command_line.load_extension = command_line.Extension\n"
        "command_line.main(sys.argv[1:])\n"
    )
    words = ("changes", "--home", ".", "--since", "2026-02-28", "--kinds", "revealed")
    shown = run(code, folder, unpacked, *words).splitlines()
    assert shown[:3] == [str(unpacked / "almanac" / "__init__.py"), "[]", "['a title']"]
    assert any("a title" in line for line in shown[3:])
