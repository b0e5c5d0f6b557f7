"""No command ends in a traceback where standard output is not UTF-8."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from almanac.command_line import commands
from almanac.console import PlainConsole, Table
from application.console import progress
from tests.application.cli.test_plain_output import event_of
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.small_home import SmallHome
from tests.test_architecture import ROOT
from tests.test_cli import environment
from warehouse.history.merge import merge

TEXT = "déjà vu — 漢字 😀 … ─"
ENCODINGS = {
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "the C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
FORMS = ("table", "vertical", "tsv", "csv", "json")
RUNS = [
    *([name, "--help"] for name in commands()),
    *(["sql", "SELECT title, description, extra FROM events", "-F", form] for form in FORMS),
    *(["sql", f"SELECT '{TEXT}' AS \"{TEXT}\"", "-F", form] for form in ("table", "json")),
    ["sql", "SELECT $text AS text", "--param", f"text={TEXT}", "-F", "json"],
    ["sql", f"SELECT '{TEXT}'::INTEGER"],
    ["sql", f"SELECT {TEXT}"],
    ["sql", "-f", "no file é"],
    *(["changes", "--since", "2000-01-01", "--format", form] for form in ("table", "json")),
    *(["changes", "--since", "2000-01-01", "--format", form] for form in ("markdown", "slack")),
    ["audit", "signals.csv", "--limit", "5"],
    ["audit", "signals.csv", "--json", "--html", "page.html"],
    ["audit", f"{TEXT}.csv"],
    *(["status", *more] for more in ([], ["--json"])),
    *(["batches", "list", "--days", "90", *more] for more in ([], ["--json"])),
    ["batches", "list", TEXT],
    *([name] for name in ("verify", "budget", "merge", "replay")),
    *(["accounts", name, "list"] for name in ("keys", "endpoints")),
    ["inbox", "list"],
    ["accounts", "keys", "create", TEXT],
    ["import", f"{TEXT}.csv"],
    ["doctor", "--offline"],
    [TEXT],
    ["run", f"--{TEXT}"],
]
DRIVER = """
import json, sys, traceback
from almanac import command_line as program
program.exit_without_teardown = lambda code: None
ends = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["almanac", *words]
    print("---", words[0], flush=True)
    try:
        program.main()
        ends.append("returned")
    except SystemExit as ended:
        ends.append(ended.code or 0)
    except BaseException:
        ends.append(traceback.format_exc())
with open("ends.json", "w", encoding="utf-8") as file:
    json.dump(ends, file)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = SmallHome(tmp_path_factory.mktemp("texts") / "data", coins=())
    small.land("events", body=json.dumps({"data": [event_of(1, TEXT)]}).encode())
    coin = {"slug": "bitcoin", "name": TEXT, "symbol": TEXT}
    small.land("coins", body=json.dumps({"data": [coin]}).encode())
    small.land("events", why_incomplete=f"the service said {TEXT}")
    merge(small.home)
    return small.home.root


@pytest.mark.parametrize(
    "encoding",
    ["cp1252", *(pytest.param(name, marks=pytest.mark.long) for name in ("ascii", "the C locale"))],
)
def test_no_command_ends_in_a_traceback(home: Path, tmp_path: Path, encoding: str) -> None:
    rows = f"event_id,decided_at,title\nev_1,2026-03-02,{TEXT}\nev_1,2026-03-03,other\n"
    (tmp_path / "signals.csv").write_text(rows, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(RUNS)],
        cwd=tmp_path,
        env={**environment(home), **ENCODINGS[encoding]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=HANGS_AFTER_S,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-2_000:]
    ends = json.loads((tmp_path / "ends.json").read_text("utf-8"))
    strange = [(words, end) for words, end in zip(RUNS, ends, strict=True) if type(end) is not int]
    assert not strange
    assert b"Traceback" not in output
    assert b"Unicode" not in output
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "déjà vu" in page


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("program", ["application", "almanac.command_line"])
def test_output_says_the_same_in_ascii(home: Path, encoding: str, program: str) -> None:
    """JSON has the same value, and a table its columns."""
    where = ["--home", str(home)] if program != "application" else []

    def output(*words: str, given: bytes = b"") -> str:
        done = subprocess.run(
            [sys.executable, "-m", program, *words, *where],
            cwd=ROOT,
            env={**environment(home), **ENCODINGS[encoding]},
            input=given,
            capture_output=True,
            timeout=HANGS_AFTER_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(ENCODINGS[encoding].get("PYTHONIOENCODING", "ascii"))

    query = f"SELECT title, '{TEXT}' AS text FROM events"
    (resolved,) = [json.loads(output("changes", "--since", "2000-01-01", "--format", "json"))]
    assert TEXT in str(resolved)
    table = output("sql", "-", "-F", "table", given=query.encode()).splitlines()
    assert "\\u6f22" in "".join(table)
    assert set("".join(table)) <= {chr(code) for code in range(32, 127)} | {"é", "à"}


def test_progress_and_tables_are_drawn_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", errors="strict", newline="\n")
    console = PlainConsole(file=file, force_terminal=True, width=80, color_system=None)
    for module in ("almanac.console", "application.console"):
        monkeypatch.setattr(f"{module}.warnings", console)
    table = Table(TEXT)
    table.add_row(TEXT)
    console.print(table, TEXT)
    with progress(TEXT, quiet=False) as bar:
        bar.update(bar.add_task(TEXT, total=2), advance=1)
    file.flush()
    assert "déjà vu" in file.buffer.getvalue().decode("cp1252")  # type: ignore[attr-defined]
