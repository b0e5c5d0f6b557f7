"""The wheel has the package alone, and works beside modules of the user with our other names."""

import email
import os
import subprocess
import sys
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from tests.almanac.packaging.wheel import ROOT, folder_of_a_user, make_wheel
from tests.almanac.publications import publish_by_hand
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.answers.handmade import Known

HEAVY: Final = ("pandas", "numpy", "pyarrow", "scipy", "polars", "dagster", "typer")
AT: Final = datetime(2026, 3, 1, 6, tzinfo=UTC)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path, files: set[str]) -> Message:
    (name,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    with ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_the_package_and_nothing_else(files: set[str]) -> None:
    package = {name for name in files if not name.partition("/")[0].endswith(".dist-info")}
    source = (ROOT / "almanac").rglob("*")
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in source
        if path.is_file() and path.suffix != ".pyc"
    }
    assert package == wanted
    assert "almanac/py.typed" in package
    assert {Path(name).suffix for name in package} == {".html", ".py", ".sql", ".typed"}
    beside = {Path(name).name for name in files - package}
    assert beside == {"METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt"}


def test_the_metadata_names_the_few_dependencies_and_no_address(metadata: Message) -> None:
    assert metadata["Name"] == "crypto-almanac"
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    needed = {name.replace(" ", "").replace("'", '"') for name in metadata.get_all("Requires-Dist")}
    assert needed == {
        *("duckdb>=1.4", "jinja2>=3.1", "pandas>=2.2", "pyarrow>=17", "rich>=14", "typer>=0.20"),
        *('icalendar>=7.0;extra=="calendar"', 'mcp>=2.0;extra=="mcp"'),
        'psycopg[binary]>=3.2;extra=="lake"',
        *('pyiceberg>=0.12;extra=="lake"', 'sqlalchemy>=2.0;extra=="lake"'),
        'polars>=1.0;extra=="polars"',
        'scipy>=1.13;extra=="study"',
    }
    assert (metadata.get_all("Project-URL"), metadata["Home-page"]) == (None, None)


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


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


def test_the_import_loads_nothing_heavy_and_nothing_of_the_user(
    unpacked: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, almanac\n"
        "print(almanac.__file__)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "dir(almanac), almanac.Database, almanac.open\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "print([name for name in ('pipeline', 'warehouse', 'assets') if name in sys.modules])\n"
    )
    shown = run(code, folder_of_a_user(tmp_path), unpacked).splitlines()
    assert shown[0] == str(unpacked / "almanac" / "__init__.py")
    assert shown[1:] == ["[]", "[]", "[]"]


def test_questions_are_answered_beside_modules_of_the_user(unpacked: Path, tmp_path: Path) -> None:
    folder = folder_of_a_user(tmp_path)
    versions = [Known(event_id="a", title="a title", known_from=AT, date=AT.replace(month=4))]
    publish_by_hand(folder / "warehouse.duckdb", versions, pulls=[AT])
    code = (
        "import almanac\n"
        "with almanac.open('.') as db:\n"
        "    print(db.upcoming(as_of='2026-03-02', within='90d').df()['title'].tolist())\n"
    )
    assert run(code, folder, unpacked) == "['a title']\n"
    code = (
        "import sys\n"
        "from almanac import command_line\n"
        "command_line.extension = command_line.Extension\n"  # Here the application is installed.
        "sys.exit(command_line.main(sys.argv[1:]))\n"
    )
    words = ("--home", ".", "--since", "2026-02-28", "--kinds", "revealed")
    assert "a title" in run(code, folder, unpacked, "changes", *words)
