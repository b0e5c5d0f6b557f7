"""What an audit shows: lines for people, JSON, a page, the exit code of the command."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import almanac
from almanac.audit.report import Audit
from almanac.command_line import main
from almanac.database import Database
from tests.almanac.audit.watched import at, audit_row

ROWS = """event_id,decided_at,date,impact,price
moved,2026-03-02T00:00:00Z,2026-03-24,5,1
scored,2026-03-02 00:00,2026-03-20,8.25,2
found,2026-03-02T00:00:00Z,2026-03-20,5,3
moved,2026-03-06T00:00:00Z,2026-03-24,5,4
<script>alert(1)</script>,2026-03-06T00:00:00Z,,,5
"""


@pytest.fixture(scope="module")
def signals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("signals") / "signals.csv"
    file.write_text(ROWS)
    return file


@pytest.fixture(scope="module")
def audit(db: Database, signals: Path) -> Audit:
    return db.audit(signals)


def test_people_see_counts_first_findings_and_what_can_t_be_judged(audit: Audit) -> None:
    lines = repr(audit).splitlines()
    assert lines[0] == (
        "signals.csv: 2 of 5 rows used something that was not known at the decision; 2 can't be "
        "judged; 1 column was not judged."
    )
    text = "\n".join(lines)
    assert re.search(r"^  scored_later +1  the score was given later$", text, re.M)
    assert re.search(r"^  not_watched +1  no pull had shown the event yet, but", text, re.M)
    assert (
        "row 1, event moved, decided 2026-03-02T00:00:00Z: date_not_moved_yet. date was used as "
        "2026-03-24; known then was 2026-03-20T14:00:00Z; it could be known from "
        "2026-03-05T06:00:00Z, 3 d 6 h later." in text
    )
    assert "Basis observed" in text
    assert "Not judged: price." in text
    assert "Timestamps without a zone were read as UTC: decided_at (1)." in text


def test_programs_get_counts_and_findings_with_instants_in_utc(audit: Audit) -> None:
    found = json.loads(audit.to_json(findings_max=3))
    assert found["groups"] == {"leak": 2, "unjudged": 2, "warning": 0, "clean": 1}
    assert found["findings_left_off"] == 1
    assert found["findings"][0]["knowable_from"] == "2026-03-05T06:00:00Z"
    assert {"verdict": "scored_later", "group": "leak", "field": "impact", "values": 1} in (
        found["summary"]
    )


def test_a_page_needs_nothing_else_and_escapes_what_it_shows(audit: Audit, tmp_path: Path) -> None:
    page = audit.to_html(tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text() == page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"<script|<link|<img|https?:|url\(", page)


def test_look_ahead_raises_with_the_first_findings(db: Database, audit: Audit) -> None:
    assert not audit.is_clean
    with pytest.raises(almanac.LookAhead, match=r"(?s)2 of 5 rows.*scored_later"):
        audit.assert_clean()
    clean = audit_row(db, {"event_id": "moved", "ts": at(2)})
    assert clean.is_clean
    clean.assert_clean()


def test_rows_of_which_none_can_be_judged_are_not_clean(db: Database) -> None:
    blind = audit_row(db, {"event_id": "found", "ts": at(2)})
    assert blind.groups["leak"] == 0
    assert not blind.is_clean
    with pytest.raises(almanac.LookAhead, match="none of 1 row could be judged"):
        blind.assert_clean()


@pytest.fixture
def run(watched_file: Path, db: Database, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str, code: int = 0) -> str:
        assert main(["audit", *words, "--home", str(watched_file)]) == code
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.out + shown.err

    return run


def test_the_command_exits_with_1_for_look_ahead_only_if_it_is_strict(
    run: Callable[..., str], signals: Path, tmp_path: Path
) -> None:
    assert "2 of 5 rows" in run(str(signals))
    assert "2 of 5 rows" in run(str(signals), "--strict", code=1)
    clean = tmp_path / "clean.csv"
    clean.write_text("id,ts\nmoved,2026-03-02\n")
    assert "no look-ahead" in run(str(clean), "--strict", "--field", "id=event_id")


def test_the_command_writes_json_and_a_page(
    run: Callable[..., str], signals: Path, tmp_path: Path
) -> None:
    page = tmp_path / "audit.html"
    shown = json.loads(run(str(signals), "--json", "--html", str(page), "--basis", "claimed"))
    assert shown["basis"] == "claimed"
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.csv"], "almanac: there is no file nothing.csv\n"),
        (["SIGNALS", "--field", "impact"], "expected COLUMN=FIELD"),
        (["SIGNALS", "--tz", "Mars"], "no such time zone"),
        (["SIGNALS", "--html", "/no/such/folder/a.html"], "there is no folder /no/such/folder"),
    ],
    ids=str,
)
def test_a_wrong_option_of_the_command_is_one_line_and_exit_code_2(
    run: Callable[..., str], signals: Path, words: list[str], message: str
) -> None:
    shown = run(*(str(signals) if word == "SIGNALS" else word for word in words), code=2)
    assert message in shown
    assert shown.count("\n") == 1
