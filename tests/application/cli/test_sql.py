"""`almanac sql`: its forms for people and programs, where its query is from, and its errors."""

import subprocess
import sys
from pathlib import Path

import pytest

from almanac.core.text import format_number
from tests.almanac.publications import publish_two_events
from tests.hangs import HANGS_AFTER_S, without_steps
from tests.pipeline.conftest import Almanac
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

WITH_LITTLE_GRACE = [
    sys.executable,
    "-c",
    "from dataclasses import replace\n"
    "from almanac import command_line, commands\n"
    "choose = commands._choose_limits\n"
    "commands._choose_limits = lambda *given: replace(choose(*given), grace_s=0.1)\n"
    "command_line.main()\n",
]
"""The command with a short grace for queries that ignore an interrupt."""
MANY = "SELECT range AS a, repeat('x', 100) AS b FROM range(20000)"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    assert publish_two_events(folder) == Home(folder).warehouse
    Home(folder).claim("sandbox:1")
    return folder


@pytest.mark.parametrize(("mode", "named"), [("wb", "link"), ("ab", "answer.csv")])
def test_csv_goes_into_the_file_that_output_is_redirected_to(
    home: Path, tmp_path: Path, mode: str, named: str
) -> None:
    """Also if --output names it in another way: nothing else is printed, no file is replaced."""
    target = tmp_path / "answer.csv"
    target.write_text("before\n")
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    with target.open(mode) as stdout:
        number = target.stat().st_ino
        done = subprocess.run(
            [*ALMANAC, "sql", "SELECT 1 AS a", "--format", "csv", *("-o", named)],
            cwd=tmp_path,
            env=environment(home),
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=HANGS_AFTER_S,
        )
    assert (done.returncode, without_steps(done.stderr.decode())) == (0, "")
    assert target.read_text() == ("before\n" if mode == "ab" else "") + "a\n1\n"
    assert target.stat().st_ino == number
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.csv", "link"]
    assert link.is_symlink()


def test_a_query_that_takes_too_long_ends_in_one_line(home: Path, tmp_path: Path) -> None:
    """The limit of its memory: tests/almanac/test_command_line.py."""
    limits = {"ALMANAC_SQL_TIMEOUT_S": "0.5"}
    sql = "SELECT levenshtein(repeat('a', 500000), repeat('b', 500000))"
    done = subprocess.run(
        [*WITH_LITTLE_GRACE, "sql", "--memory", "200MB", sql],
        cwd=tmp_path,
        env={**environment(home), **limits},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("almanac: ")
    assert "it took longer than 0.5 s" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT content FROM read_text('/proc/self/environ')", "disabled by configuration"),
        ("WITH x AS (COPY (SELECT 1) TO 'new.csv') SELECT 1", "does more than read"),
    ],
)
def test_a_query_that_reads_files_or_writes_is_refused_in_one_line(
    almanac: Almanac, home: Path, tmp_path: Path, sql: str, why: str
) -> None:
    done = almanac("sql", sql, code=1, home=str(home))
    assert why in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["some/missing/answer.parquet", "link"])
def test_an_answer_in_a_folder_that_is_missing_is_refused_and_no_folder_is_made(
    almanac: Almanac, home: Path, tmp_path: Path, named: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "some" / "missing" / "answer.parquet")
    words = ("sql", "SELECT 1 AS a", "--format", "parquet", "-o", named)
    done = almanac(*words, code=2, home=str(home))
    folder = tmp_path / "some" / "missing"
    assert done.stderr == (
        f"almanac: {named} can't be written: there is no folder {folder}. Nothing was written; "
        "create the folder, or name a file in an existing one.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_pipe_gets_fields_between_tabs_with_escapes_and_a_mark_for_null(
    almanac: Almanac, home: Path
) -> None:
    sql = r"""SELECT
        e'a\tb\nc\\d\re' AS "x	y", NULL AS n, '' AS e, '\N' AS s, 1/3 AS f, e'\x1b' AS i
        FROM range(41)"""
    done = almanac("sql", sql, home=str(home))
    header, *rows = done.stdout.splitlines()
    assert header.split("\t") == ["x\\ty", "n", "e", "s", "f", "i"]
    assert (
        rows
        == ["\t".join([r"a\tb\nc\\d\re", r"\N", "", r"\\N", "0.3333333333333333", r"\x1b"])] * 41
    )


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("a.csv", b"a\n"), ("a.TSV", b"a\n"), ("a.json", b"["), ("a.parquet", b"PAR1")],
)
def test_the_end_of_its_name_tells_the_format_of_a_file(
    almanac: Almanac, home: Path, tmp_path: Path, name: str, beginning: bytes
) -> None:
    done = almanac("sql", "SELECT 1 AS a", "-o", name, home=str(home))
    assert done.stdout == f"1 row in {name}\n"
    assert (tmp_path / name).read_bytes().startswith(beginning)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("SELECT 1", "-o", "a.csv", "-F", "json"), "--format json contradicts the name a.csv"),
        (("SELECT 1", "-o", "a.txt"), "the name a.txt tells no format"),
        (("SELECT 1", "-o", "a.csv", "-F", "table"), "--format table can't be written to a file"),
        (("SELECT 1", "-F", "parquet"), "parquet needs a file"),
        (("SELECT 1", "-f", "q.sql"), "expected one statement"),
        (("-f", "csv"), "the format is --format or -F"),
    ],
)
def test_words_that_contradict_are_refused(
    almanac: Almanac, home: Path, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    done = almanac("sql", *words, code=2, home=str(home))
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [";\n-- why", " ; /* why; */ ", ";;"])
@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_statement_may_end_with_a_semicolon_and_a_comment(
    almanac: Almanac, home: Path, form: str, end: str
) -> None:
    done = almanac("sql", f"/* why */ SELECT ';' AS a{end}", "--format", form, home=str(home))
    assert ";" in done.stdout


def test_parameters_are_bound_as_text_also_in_macros(almanac: Almanac, home: Path) -> None:
    sql = "SELECT count(*) AS n, $name AS name FROM events_as_of($ts)"
    text = "x'; DROP TABLE events; --"
    words = ("--param", "ts=2026-03-01 06:00", "--param", f"name={text}")
    for form in ("csv", "table"):
        done = almanac("sql", sql, *words, "--format", form, home=str(home))
        assert text in done.stdout
    early = ("--param", "ts=2001-01-01", "--param", "name=a=b")
    for words, why in (
        ((), "the parameter $a has no value. On the command line --param a=VALUE"),
        (("--param", "a=1", "--param", "b=2"), "the statement has no parameter $b"),
    ):
        assert why in almanac("sql", "SELECT $a", *words, code=1, home=str(home)).stderr
    done = almanac("sql", sql, *early, code=1, home=str(home))
    assert "2001-01-01 is before the first observation" in done.stderr


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        *((0.1 + 0.2, "0.3"), (100.0, "100"), (0.0, "0"), (-2.34567, "-2.346")),
        *((0.000123456, "0.000123"), (1e-9, "1e-09"), (1234567.5, "1234567.5")),
        (float("-inf"), "-inf"),
    ],
)
def test_people_see_rounded_numbers(number: float, shown: str) -> None:
    assert format_number(number) == shown
