"""Texts of a service are shown as text on every output, and never act on a terminal."""

import ast
import json
from pathlib import Path

import pytest

from almanac.console import Table, people
from application.console import folded, print_json
from catalog.contract.plans import PLANS
from catalog.server.state_dir import ServiceDir
from tests.application.cli.hostile_texts import HOSTILE, acting_in
from tests.pipeline.conftest import Almanac
from tests.pipeline.small_home import NOW, SmallHome
from tests.test_architecture import ROOT, imports_of
from tests.test_cli import on_terminal
from warehouse.history.merge import merge

CLI = sorted((ROOT / "application").rglob("*.py"))
ANY = " ".join(HOSTILE.values())
AT = "2026-02-01T00:00:00Z"


def event_of(number: int, text: str) -> dict[str, object]:
    return {
        "id": f"ev_{number}",
        "slug": f"event-{number}",
        "title": text,
        "description": text,
        "displayedDate": text,
        "date": "2026-03-05T00:00:00Z",
        "dateType": "exact",
        "coins": [{"slug": "bitcoin", "symbol": text, "name": text}],
        "categories": [text],
        "createdAt": AT,
        "updatedAt": AT,
        text: text,
    }


def landed(root: Path) -> SmallHome:
    """Return a home in which every text is hostile; nothing is merged."""
    small = SmallHome(root, coins=())
    events = [event_of(number, text) for number, text in enumerate(HOSTILE.values())]
    small.land("events", body=json.dumps({"data": events}).encode())
    coin = {"slug": "bitcoin", "name": ANY, "symbol": ANY}
    small.land("coins", body=json.dumps({"data": [coin, {"slug": ANY}]}).encode())
    for number, text in enumerate(HOSTILE.values()):
        at = NOW.replace(minute=number)
        small.land("categories", at=at, body=json.dumps({"error": {"message": text}}).encode())
        small.land("events", at=at, why_incomplete=f"the service said {text}")
    book = ServiceDir(small.settings.service_dir).key_book()
    book.create(ANY, plan=PLANS["elite"])
    return small


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> SmallHome:
    small = landed(tmp_path_factory.mktemp("hostile") / "data")
    merge(small.home)
    return small


COMMANDS = {
    "list": ("batches", "list", "--days", "30"),
    "status": ("status",),
    "verify": ("verify",),
    "budget": ("budget",),
    "keys": ("accounts", "keys", "list"),
    "titles": ("sql", "SELECT title, description, displayed_date, extra FROM events"),
    "columns": ("sql", f'SELECT 1 AS "{ANY.replace(chr(34), chr(39))}"'),
    "rejects": ("sql", "SELECT * FROM rejects"),
    "coins": ("sql", "SELECT * FROM coins"),
    "refused": ("sql", f"SELECT '{ANY.replace(chr(39), '')}'::INTEGER"),
}


def test_no_merge_lets_a_text_act(tmp_path: Path, almanac: Almanac) -> None:
    small = landed(tmp_path / "data")
    done = almanac("merge", home=str(small.home.root), plan="elite")
    assert acting_in(done.stdout + done.stderr) == []
    assert "\\x1b" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_lets_a_text_act(name: str, home: SmallHome, almanac: Almanac) -> None:
    code = 1 if name == "refused" else 0
    root = str(home.home.root)
    done = almanac(*COMMANDS[name], code=code, home=root, plan="elite")
    assert acting_in(done.stdout + done.stderr) == []
    if name in ("list", "titles", "keys"):
        assert "[/x]" in done.stdout
        assert "\\x1b" in done.stdout


def test_batches_can_be_shown(home: SmallHome, almanac: Almanac) -> None:
    for batch_id in home.home.landing.batch_ids()[::4]:
        done = almanac("batches", "list", batch_id, home=str(home.home.root))
        assert acting_in(done.stdout) == []


@pytest.mark.parametrize("name", ["list", "status", "keys"])
def test_json_output_is_exact_and_has_no_control_characters(
    name: str, home: SmallHome, almanac: Almanac
) -> None:
    done = almanac(*COMMANDS[name], "--json", home=str(home.home.root))
    assert acting_in(done.stdout) == []
    rows = json.loads(done.stdout)
    if name == "keys":
        assert [row["account"] for row in rows] == [ANY]


@pytest.mark.parametrize("name", ["list", "titles", "refused"])
def test_no_text_acts_on_a_real_terminal(name: str, home: SmallHome) -> None:
    output = on_terminal(
        home.home.root,
        *COMMANDS[name],
        term="xterm-256color",
        code=1 if name == "refused" else 0,
    )
    assert len(output) > 100
    assert acting_in(output, on_terminal=True) == []


def test_a_table_and_a_line_take_any_text(capsys: pytest.CaptureFixture[str]) -> None:
    for text in HOSTILE.values():
        table = Table(text, title=text)
        table.add_row(text)
        table.add_row(folded(text))
        people.print(table)
        people.print(text)
        print_json({text: text})
    assert acting_in(capsys.readouterr().out) == []


def test_only_the_console_writes_to_a_terminal() -> None:
    """So that no command can print a text without making it plain."""
    writing = {"rich", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write", "print"}
    for path in CLI:
        if path.stem in ("console", "settings"):
            continue
        tree = ast.parse(path.read_text())
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        imported = {name.partition(".")[0] for name in imports_of(path)}
        assert not (called | imported) & writing, path.name
        assert "markup=True" not in path.read_text(), path.name
