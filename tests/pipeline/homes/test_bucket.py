"""ALMANAC_BUCKET in commands: an empty home is rebuilt, and a second writer stops with one line."""

import json
import shutil
from pathlib import Path

from tests.pipeline.conftest import Almanac
from tests.warehouse.normalise.catalog_bodies import csv_body, plain

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
    almanac("verify", "--deep", **with_bucket)


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


def test_a_second_writer_stops_with_one_line(almanac: Almanac, tmp_path: Path) -> None:
    with_bucket = {"bucket": f"file://{tmp_path}/bucket"}
    land(almanac, 1, **with_bucket)
    said = land(almanac, 2, code=1, home=str(tmp_path / "other"), **with_bucket)
    assert "a bucket has one writer. Nothing was done. Stop that one" in said
    assert "Traceback" not in said
    land(almanac, 2, **with_bucket)


def test_a_bucket_that_can_not_be_reached_is_one_line(almanac: Almanac, tmp_path: Path) -> None:
    (tmp_path / "bucket").write_bytes(b"a file")
    said = land(almanac, 1, code=1, bucket=f"file://{tmp_path}/bucket")
    assert "(ALMANAC_BUCKET) can't be used" in said and "Traceback" not in said
    said = land(almanac, 1, code=2, bucket="s3://key:canary@bucket")
    assert "ALMANAC_BUCKET" in said and "canary" not in said
