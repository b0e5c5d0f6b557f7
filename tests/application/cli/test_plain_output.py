"""Texts of a service are shown as text on every output and in Dagster, and never act."""

import ast
import json
import subprocess
from pathlib import Path

import dagster as dg
import pytest

from assets.metadata import pull_metadata
from catalog.contract.plans import PLANS
from catalog.server.service_dir import ServiceDir
from resources.session import FeedDay
from tests.application.cli.hostile_texts import HOSTILE, acting_in
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.conftest import Almanac, command_line_in
from tests.pipeline.small_home import NOW, SmallHome
from tests.test_architecture import ROOT, imports_of
from tests.test_cli import ALMANAC, environment, on_terminal

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
    with pytest.MonkeyPatch.context() as patched:
        root = small.home.root
        almanac = command_line_in(root.parent, tmp_path_factory.mktemp("machine"), patched)
        done = almanac("merge", home=str(root), plan="elite")
    assert acting_in(done.stdout + done.stderr) == []
    assert "\\x1b" in done.stdout
    return small


COMMANDS = {
    "list": ("batches", "list", "--days", "30"),
    "status": ("status",),
    "verify": ("verify",),
    "budget": ("budget",),
    "keys": ("sandbox", "keys", "list"),
    "titles": ("sql", "SELECT title, description, displayed_date, extra FROM events"),
    "columns": ("sql", f'SELECT 1 AS "{ANY.replace(chr(34), chr(39))}"'),
    "rejects": ("sql", "SELECT * FROM rejects"),
    "coins": ("sql", "SELECT * FROM coins"),
    "refused": ("sql", f"SELECT '{ANY.replace(chr(39), '')}'::INTEGER"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_lets_a_text_act(name: str, home: SmallHome, almanac: Almanac) -> None:
    code = 1 if name == "refused" else 0
    root = str(home.home.root)
    done = almanac(*COMMANDS[name], code=code, home=root, plan="elite")
    assert acting_in(done.stdout + done.stderr) == []
    if name == "list":
        batch_id = home.home.landing.batch_ids()[-1]
        assert acting_in(almanac("batches", "list", batch_id, home=root).stdout) == []
    if name in ("list", "titles", "keys"):
        assert "[/x]" in done.stdout
        assert "\\x1b" in done.stdout


@pytest.mark.parametrize("name", ["list", "status", "keys"])
def test_json_output_is_exact_and_has_no_control_characters(
    name: str, home: SmallHome, almanac: Almanac
) -> None:
    done = almanac(*COMMANDS[name], "--json", home=str(home.home.root))
    assert acting_in(done.stdout) == []
    rows = json.loads(done.stdout)
    if name == "keys":
        assert [row["account"] for row in rows] == [ANY]


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


def test_output_in_another_encoding_is_escaped_and_json_is_the_same(
    home: SmallHome, tmp_path: Path
) -> None:
    text = "déjà vu — 漢字 😀 … ─"

    def output(form: str) -> bytes:
        done = subprocess.run(
            [*ALMANAC, "sql", f"SELECT '{text}' AS text", "-F", form],
            cwd=tmp_path,
            env={**environment(home.home.root), "PYTHONIOENCODING": "cp1252"},
            capture_output=True,
            check=True,
            timeout=HANGS_AFTER_S,
        )
        return done.stdout

    assert "\\u6f22" in output("table").decode("cp1252")
    assert json.loads(output("json")) == [{"text": text}], "JSON is UTF-8"


def test_no_text_acts_on_a_real_terminal_where_a_wide_row_is_shown_vertically(
    home: SmallHome,
) -> None:
    output = on_terminal(home.home.root, *COMMANDS["titles"], term="xterm-256color")
    assert len(output) > 100
    assert acting_in(output, on_terminal=True) == []
    wide = f"SELECT 'evt-{'x' * 90}' AS event_id, 2/3 AS share, 2.0::DOUBLE AS whole"
    shown = on_terminal(home.home.root, "sql", f"-- wide\n{wide}")
    assert f"event_id  evt-{'x' * 90}\nshare     0.667\nwhole     2\n" in shown
    assert shown.endswith("1 row\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_the_metadata_of_a_materialisation_shows_its_text_only(name: str, tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    text = HOSTILE[name]
    (listed,) = small.land("events", body=b'{"data": []}', why_incomplete=text)
    feed_day = FeedDay(
        "events", NOW.date(), text, (listed,), warnings=(text, f"the service said {text}")
    )
    metadata = pull_metadata(feed_day, quota_left=None)
    assert not any(isinstance(value, dg.MarkdownMetadataValue) for value in metadata.values())
    shown = [metadata["outcome"], metadata["warnings"]]
    for name in ("batches", "problems"):
        shown += [cell for row in metadata[name].records for cell in row.data.values()]
    assert acting_in("\n".join(shown)) == []
