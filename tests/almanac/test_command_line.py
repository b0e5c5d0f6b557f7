"""The command of the wheel answers as the application's does, and ends without a traceback."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from almanac import command_line, commands, console
from almanac.command_line import main
from almanac.reading.row_files import write_answer
from tests.almanac.publications import publish_two_events
from tests.application.cli.hostile_texts import HOSTILE, acting_in
from tests.hangs import HANGS_AFTER_S, without_steps
from tests.in_process import own_process

SQL = "SELECT event_id, version, coins, impact, known_from FROM event_versions ORDER BY ALL"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_two_events(tmp_path_factory.mktemp("it's a home")).parent


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without the application, on a wide terminal."""
    monkeypatch.setattr(command_line, "load_extension", command_line.Extension)
    monkeypatch.setattr(commands, "load_extension", command_line.Extension)
    for stream in (console.people, console.warnings):
        monkeypatch.setattr(stream, "_width", 200)
    monkeypatch.setenv("COLUMNS", "200")
    with own_process():
        yield


@pytest.mark.parametrize("form", ["csv", "tsv", "json"])
def test_rows_are_the_same_bytes_as_those_of_the_application(
    home: Path, capfdbinary: pytest.CaptureFixture[bytes], form: str
) -> None:
    written, query = io.BytesIO(), f"SELECT *, '=1' || chr(27) || '[2Jb' AS cell FROM ({SQL})"
    write_answer(home / "warehouse.duckdb", query, written, form, formulas=False)
    assert main(["sql", query, "--home", str(home), "-F", form]) == 0
    shown = capfdbinary.readouterr().out
    assert shown == written.getvalue()
    if form == "csv":
        assert b"'=1\x1b[2Jb" in shown, "a spreadsheet would run the cell without a mark"


def test_a_table_shows_the_first_rows_and_counts_all(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT i AS number, 'a' || i AS text FROM range(7) AS r (i)"
    assert main(["sql", query, "--home", str(home), "-F", "table", "--limit", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[3:5] == ["│ 0      │ a0   │", "│ 1      │ a1   │"]
    assert shown[-1] == "7 rows, 2 shown (--limit)"


def test_a_parameter_is_bound_and_a_statement_is_read_from_a_file(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "query.sql"
    file.write_text("-- a comment\nSELECT $name AS name")
    words = ["sql", "-f", str(file), "--param", "name=it's", "--home", str(home), "-F", "tsv"]
    assert main(words) == 0
    assert capsys.readouterr().out == "name\nit's\n"


@pytest.mark.parametrize("form", ["table", "tsv", "json"])
def test_no_text_acts_on_the_terminal(
    home: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    texts = list(HOSTILE.values())
    names = [f"text_{number}" for number in range(len(texts))]
    query = f"SELECT unnest([{', '.join(f'${name}' for name in names)}]) AS text"
    given = [f"{name}={text}" for name, text in zip(names, texts, strict=True)]
    words = ["sql", query, *(word for pair in given for word in ("--param", pair))]
    assert main([*words, "--home", str(home), "-F", form]) == 0
    shown = capsys.readouterr().out
    assert acting_in(shown) == []
    assert shown.count("good") == 1, "no text is left out"
    if form == "json":
        assert json.loads(shown) == [{"text": text} for text in texts]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["sql", "DROP TABLE events"], 1, "does more than read"),
        (["sql", "SELECT nothing"], 1, "nothing"),
        (["sql"], 2, "expected one statement"),
        (["sql", "SELECT $a", "--param", "a"], 2, "expected NAME=TEXT"),
        (["sql", "-f", "no.sql"], 2, "no.sql: No such file"),
        (["changes", "--coins", "no-such-coin"], 2, "no coin has the slug, symbol or name"),
        (["changes", "--since", "2199-01-01"], 2, "is still to come"),
        (["changes", "--since", "soon"], 2, "expected ISO 8601"),
        (["changes", "--limit", "0", "--format", "json"], 2, "limit=0: expected at least 1"),
    ],
)
def test_an_error_is_one_text_with_its_exit_code(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    assert main([*words, "--home", str(home)]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("almanac: ")
    assert message in shown.err


def test_without_a_home_the_message_says_what_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["changes", "--home", str(tmp_path)]) == 1
    assert f"the folder {tmp_path} has no warehouse.duckdb" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["sql", "--home", "s3://bucket/secret", "SELECT 1"],
        ["sql", "-f", "https://host/secret.sql"],
        ["audit", "gs://bucket/secret.csv"],
        ["audit", "rows.csv", "--html", "s3://bucket/secret.html"],
        ["changes", "--home", "https://host/secret"],
    ],
    ids=" ".join,
)
def test_an_address_is_refused_where_a_path_is_expected(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert "the path is an address" in shown and "secret" not in shown


LARGE = "SELECT sum(length(x)) FROM (SELECT repeat('a', 1500000000) || i AS x FROM range(9) t(i))"
"""Texts whose memory DuckDB does not count."""


def process_of(
    home: Path, query: str, *words: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "almanac.command_line", "sql", query, "--home", str(home), *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_closed_pipe_ends_the_command_quietly(home: Path) -> None:
    with process_of(home, "SELECT i, repeat('x', 99) FROM range(20_000) AS r (i)") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert without_steps(process.stderr.read()) == ""
        assert process.wait(HANGS_AFTER_S) == 0


def test_memory_of_a_query_is_bounded_by_its_process(home: Path) -> None:
    """Its time as well: tests/application/cli/test_sql.py."""
    with process_of(home, LARGE, "-F", "csv", "--memory", "200MB") as process:
        output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output) == (1, "")
    assert without_steps(errors) == (
        "almanac: the query was stopped: it needs more memory than --memory allows\n"
    )


def test_arguments_are_utf_8_in_the_c_locale(home: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("event_id,żółć,wynik\nnone,2026-03-02T00:00:00Z,5\n", "utf-8")
    words = ["audit", str(rows), "--decided-at", "żółć", "--field", "wynik=impact", "--json"]
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "almanac.command_line", *words, "--home", str(home)],
        env={**os.environ, **locale},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["columns"]["decided_at"] == "żółć"


@pytest.mark.parametrize("form", ["table", "vertical"])
def test_rows_that_are_too_large_to_show_are_not_laid_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    monkeypatch.setattr(console, "Table", None)
    monkeypatch.setattr(console.people, "print", None)
    rows = "SELECT repeat('x', 2000000) FROM range(170)"
    assert main(["sql", rows, "--home", str(home), "-F", form, "--limit", "999"]) == 1
    assert capsys.readouterr() == (
        "",
        "almanac: the rows have more than 10,000,000 characters, too many to show. Print fewer "
        "rows (--limit), or let `almanac sql` write them to a file (--output).\n",
    )


def test_a_limit_that_is_none_is_a_usage_error(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, text in (("--memory", "9MB"), ("--timeout", "-1")):
        assert main(["sql", "SELECT 1", "--home", str(home), option, text]) == 2
        assert f"{text!r}: expected" in capsys.readouterr().err


def test_a_statement_that_is_not_utf8_is_refused_in_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT '\xff'"), "utf-8"))
    for statement in ("-", "SELECT '\udcff'"):
        assert main(["sql", "--home", str(home), statement]) == 2
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1 and "not UTF-8 text" in shown


def test_csv_has_no_escape_sequence_on_a_terminal(home: Path) -> None:
    screen, terminal = os.openpty()
    query = "SELECT 'a' || chr(27) || '[2Jb' AS x"
    with process_of(home, query, "-F", "csv", stdout=terminal) as process:
        assert process.wait(HANGS_AFTER_S) == 0
        os.close(terminal)
        assert os.read(screen, 4_096) == b"x\r\na\\x1b[2Jb\r\n"
    os.close(screen)
