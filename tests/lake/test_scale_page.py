"""The commands and examples of docs/scale.md, in a checkout: one after the other, as a reader."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.page import block_with
from tests.hangs import HANGS_AFTER_S
from tests.lake.servers import s3_environment
from tests.test_cli import ROOT

pytestmark = pytest.mark.lake
PAGE = ROOT / "docs" / "scale.md"
USER = {"KEY_ID=…": "KEY_ID=test", "ACCESS_KEY=…": "ACCESS_KEY=test"}
COUNTS = """
import almanac
with almanac.open("data") as db:
    for table in ("event_versions", "events", "coins", "coin_snapshots", "batches"):
        print(table, len(db.sql(f"FROM {table}")))
"""


class Reader:
    """A checkout with an environment, and the shell of a person in it."""

    def __init__(self, folder: Path, bucket: str, server: str) -> None:
        self.folder, self.bucket = folder / "checkout", bucket
        files = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(files, cwd=ROOT, capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file() and not name.startswith("tests/"):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self.folder / name)
        (self.folder / ".venv").symlink_to(sys.prefix)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("ALMANAC_")}
        self.environment = {
            **kept,
            # In a checkout, `almanac` is the program of its own environment.
            "PATH": f"{self.folder}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
            "ALMANAC_STATE": str(folder / "machine"),
            "AWS_ENDPOINT_URL": server,
            "AWS_REGION": s3_environment(server)["AWS_REGION"],
        }

    def shell(self, part: str, **replaced: str) -> str:
        text = block_with(part, PAGE).text
        for old, new in {**USER, "s3://BUCKET/FOLDER": self.bucket, **replaced}.items():
            text = text.replace(old, new)
        return self.run("bash", "-euc", text)

    def python(self, code: str) -> str:
        return self.run(".venv/bin/python", "-c", code)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, s3_server: str) -> Reader:
    folder = tmp_path_factory.mktemp("reader")
    found = Reader(folder, f"s3://almanac/{folder.name}", s3_server)
    found.shell("ALMANAC_BUCKET")
    return found


def test_iceberg(reader: Reader) -> None:
    assert "event_steps, publications" in reader.shell("warehouse.iceberg")
    assert "nothing is new" in reader.shell("warehouse.iceberg")
    counts = 'import almanac; print(events.num_rows, len(almanac.open("data").sql("FROM events")))'
    found, expected = reader.python(block_with("pinned", PAGE).text + counts).split()
    assert found == expected > "0"


def test_an_empty_home_is_rebuilt_from_the_bucket(reader: Reader) -> None:
    before = reader.python(COUNTS)
    shutil.rmtree(reader.folder / "data")
    reader.shell("ALMANAC_BUCKET", **{"almanac run": "almanac merge"})
    assert reader.python(COUNTS) == before
