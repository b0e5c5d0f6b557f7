"""Commands on homes with a damaged home.json, an odd path, and a bucket."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from almanac.core.errors import WarehouseError
from tests.crashes.rotting import land_look_up, make_home
from tests.history.stories.handmade import SOURCE
from tests.pipeline.conftest import Almanac
from tests.warehouse.normalise.catalog_bodies import csv_body, plain
from warehouse.home import Home

COMMANDS = (
    *(("run",), ("merge",), ("status",), ("verify",), ("sql", "SELECT 1"), ("ui",), ("budget",)),
)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage"),
    "folder": _folder,
    "wrong types": lambda path: path.write_text(json.dumps({"source": 7, "format": "1"})),
    "a password": lambda path: path.write_text('{"source": "https://u:pw@x.example"}'),
    "manifest": lambda path: path.write_bytes(
        next(path.parent.glob("landing/batches/*/*.json")).read_bytes()
    ),
    "gone": Path.unlink,
}


CopyTo = Callable[[Path], Home]


@pytest.fixture(scope="module")
def made(every_kind: CopyTo, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return every_kind(tmp_path_factory.mktemp("stamped") / "home")


@pytest.mark.parametrize("harm", HARMS)
def test_each_command_names_the_repair_of_a_damaged_stamp_in_one_line(
    harm: str, made: Home, almanac: Almanac
) -> None:
    stamp = made.root / "home.json"
    held = stamp.read_bytes()
    HARMS[harm](stamp)
    for words in COMMANDS if harm == "garbage" else (("status",), ("merge",)):
        done = almanac(*words, code=1, home=str(made.root))
        assert "almanac doctor --fix" in " ".join(done.output.split()), words
    made.rebuild_stamp()
    assert made.stamp() is not None
    assert stamp.read_bytes() == held


def test_a_newer_format_is_left_alone(made: Home) -> None:
    stamp = made.root / "home.json"
    held = stamp.read_bytes()
    newer = json.dumps({"source": SOURCE, "format": 2}).encode()
    stamp.write_bytes(newer)
    with pytest.raises(WarehouseError, match="upgrade Almanac"):
        made.rebuild_stamp()
    assert stamp.read_bytes() == newer
    stamp.write_bytes(held)


ALL_IN_ONE = "*[a]50% %d#'\"ü;=\n$"
HIVE = "observed_date=2020-01-01"
"""A folder name in the form of a Hive partition: DuckDB would add a column of that name."""
REFUSED = ("a?b", "%20", "back\\slash")


def test_every_command_works_in_a_home_of_an_odd_name(
    tmp_path: Path, every_kind: CopyTo, almanac: Almanac
) -> None:
    root = tmp_path / HIVE / ALL_IN_ONE
    root.parent.mkdir()
    land_look_up(every_kind(root), 51)
    # A home that the name as a pattern would match.
    every_kind(tmp_path / HIVE / ALL_IN_ONE.replace("*", "xx").replace("[a]", "a"))
    for words in (
        *(("merge",), ("sql", "FROM coin_snapshots"), ("batches", "list"), ("status",)),
        ("verify", "--deep"),
    ):
        almanac(*words, home=str(root))
    answer = almanac("sql", "SELECT count(*) FROM batches", "--format", "csv", home=str(root))
    assert answer.stdout.split()[-1] == str(len(Home(root).landing.batch_ids()))


@pytest.mark.parametrize("name", REFUSED)
def test_a_home_that_would_be_taken_for_another_is_refused_before_anything_is_written(
    name: str, tmp_path: Path, almanac: Almanac
) -> None:
    for words in (("run",), ("merge",), ("status",), ("sql", "SELECT 1"), ("ui",)):
        done = almanac(*words, code=1, home=str(tmp_path / name / "home"))
        assert "set ALMANAC_HOME to a path without '?'" in " ".join(done.output.split())
    assert not (tmp_path / name).exists()


TABLES = ("event_versions", "events", "batches", "coverage")


def read_tables(almanac: Almanac) -> list[str]:
    return [
        almanac("sql", f"FROM {table} ORDER BY ALL", "--format", "json").stdout for table in TABLES
    ]


def land(almanac: Almanac, day: int, *, code: int = 0, **given: str) -> str:
    """Import an export of a day; return what the command says."""
    Path("export.csv").write_bytes(csv_body([plain(id=f"e{n}") for n in range(day + 1)]))
    words = ("import", "export.csv", "--content-at", f"2026-03-0{day}T06:00:00Z")
    done = almanac(*words, code=code, **given)
    return " ".join(f"{done.stdout} {done.stderr}".split())


def test_the_next_command_rebuilds_an_empty_home(almanac: Almanac, tmp_path: Path) -> None:
    with_bucket = {"bucket": f"file://{tmp_path}/bucket"}
    for day in (1, 2):
        land(almanac, day, **with_bucket)
    almanac("merge", **with_bucket)
    before = read_tables(almanac)
    shutil.rmtree(tmp_path / "data")
    done = almanac("status", "--json", **with_bucket)
    assert json.loads(done.stdout)["source"] is None, "status reads, and rebuilds nothing"
    almanac("batches", "list", **with_bucket)
    assert read_tables(almanac) == before


def test_doctor_uploads_what_was_landed_without_the_bucket(
    almanac: Almanac, tmp_path: Path
) -> None:
    with_bucket = {"bucket": f"file://{tmp_path}/bucket"}

    def check(*words: str, code: int = 0) -> str:
        done = almanac("doctor", "--json", *words, code=code, **with_bucket)
        (found,) = [each for each in json.loads(done.stdout) if each["what"] == "bucket"]
        assert found["holds"] is (code == 0)
        return str(found["found"])

    land(almanac, 1, **with_bucket)
    assert check().endswith("has all")
    land(almanac, 2)
    assert check(code=1).endswith("lacks 2 files of landing: almanac doctor --fix")
    assert check("--fix").endswith("has all")


@pytest.fixture(scope="package")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> CopyTo:
    """Copies the home to a path that is free."""
    made = make_home(tmp_path_factory.mktemp("every_kind") / "home").root

    def copy_to(root: Path) -> Home:
        shutil.copytree(made, root)
        return Home(root)

    return copy_to
