"""`almanac sql` as a program: standard output as a file, a pipe or closed, and its errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import Almanac
from tests.test_cli import ALMANAC, environment
from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.home import Home

WITH_LITTLE_GRACE = [
    sys.executable,
    "-c",
    "from dataclasses import replace\n"
    "from pipeline.cli import main as cli, sql as sql_cli\n"
    "limits = sql_cli._limits\n"
    "sql_cli._limits = lambda settings: replace(limits(settings), grace_s=0.1)\n"
    "cli.main()\n",
]
"""The command with a short grace for queries that ignore an interrupt."""
MANY = "SELECT range AS a, repeat('x', 100) AS b FROM range(20000)"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    lake = SmallLake(folder)
    lake.set_plans([Plan((Op(0, seed=1), Op(1, seed=2)))])
    lake.publish()
    assert lake.warehouse == Home(folder).warehouse
    Home(folder).claim("sandbox:1")
    return folder


@pytest.mark.parametrize("mode", ["wb", "ab"])
@pytest.mark.parametrize("named", [None, "/dev/stdout", "link", "answer.csv"])
def test_csv_goes_into_the_file_that_output_is_redirected_to(
    home: Path, tmp_path: Path, mode: str, named: str | None
) -> None:
    """Also if --output names it in another way: nothing else is printed, no file is replaced."""
    target = tmp_path / "answer.csv"
    target.write_text("before\n")
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    with target.open(mode) as stdout:
        number = target.stat().st_ino
        done = subprocess.run(
            [*ALMANAC, "sql", "SELECT 1 AS a", "-f", "csv", *(["-o", named] if named else [])],
            cwd=tmp_path,
            env=environment(home),
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert target.read_text() == ("before\n" if mode == "ab" else "") + "a\n1\n"
    assert target.stat().st_ino == number
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.csv", "link"]
    assert link.is_symlink()


def test_json_goes_into_a_pipe_whole(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*ALMANAC, "sql", MANY, "-f", "json"],
        cwd=tmp_path,
        env=environment(home),
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(json.loads(done.stdout)) == 20_000


def test_a_pipe_that_is_closed_early_ends_the_query_quietly(home: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*ALMANAC, "sql", MANY, "-f", "csv"],
        cwd=tmp_path,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a,b\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(60)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT content FROM read_text('/proc/self/environ')", "disabled by configuration"),
        ("WITH x AS (COPY (SELECT 1) TO 'new.csv') SELECT 1", "does more than read"),
        ("SELECT count(*) FROM range(1000000000000)", "it took longer than 0.5 s"),
        (
            "SELECT levenshtein(repeat('a', 500000), repeat('b', 500000))",
            "it took longer than 0.5 s",
        ),
        ("SELECT repeat('x', 1000000000) FROM range(100)", "the query was stopped"),
    ],
)
def test_a_query_that_reads_files_writes_or_exhausts_ends_in_one_line(
    home: Path, tmp_path: Path, sql: str, why: str
) -> None:
    limits = {"ALMANAC_SQL_TIMEOUT_S": "0.5", "ALMANAC_SQL_MEMORY": "200MB"}
    done = subprocess.run(
        [*WITH_LITTLE_GRACE, "sql", sql],
        cwd=tmp_path,
        env={**environment(home), **limits},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("almanac: ")
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["some/missing/answer.parquet", "link"])
def test_an_answer_in_a_folder_that_is_missing_is_refused_and_no_folder_is_made(
    almanac: Almanac, home: Path, tmp_path: Path, named: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "some" / "missing" / "answer.parquet")
    words = ("sql", "SELECT 1 AS a", "-f", "parquet", "-o", named)
    done = almanac(*words, code=2, home=str(home))
    folder = tmp_path / "some" / "missing"
    assert done.stderr == (
        f"almanac: {named} can't be written: there is no folder {folder}. Nothing was written; "
        "create the folder, or name a file in an existing one.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
