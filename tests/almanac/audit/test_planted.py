"""Leaks planted into rows made from a sandbox's truth are all found, and clean rows are not."""

import csv
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

import almanac
from almanac.database import Database
from tests.almanac.audit.planted import KINDS, PlantedRow, Planter
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.watched_sandbox import LAST, PULLS, Watched, watch

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture(scope="module")
def watched() -> Watched:
    return watch()


@pytest.fixture(scope="module")
def home(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "warehouse.duckdb"
    return publish_by_hand(path, watched.versions, pulls=PULLS, claims=watched.claims)


@pytest.fixture(scope="module")
def db(home: Path) -> Iterator[Database]:
    with almanac.open(home, clock=lambda: LAST) as database:
        yield database


def planted(watched: Watched, count: int, seed: int) -> list[PlantedRow]:
    """Return `count` leaks, of each kind as many, and as many clean rows, in random order."""
    planter = Planter(watched.versions, seed)
    leaks = [planter.leak(KINDS[number % len(KINDS)]) for number in range(count)]
    rows = leaks + [planter.clean() for _ in range(count)]
    Random(seed).shuffle(rows)
    return rows


def judged(db: Database, rows: list[PlantedRow], frame: Any) -> list[tuple[str, datetime | None]]:
    """Return for each row its verdict, and from when the value could be known."""
    audit = db.audit(frame)
    verdicts = [row["verdict"] for row in audit.verdicts]
    knowable = {
        (found["row"], found["verdict"]): found["knowable_from"] for found in audit.rows.rows()
    }
    return [(verdict, knowable.get((row, verdict))) for row, verdict in enumerate(verdicts, 1)]


def write_csv(path: Path, rows: list[PlantedRow]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0].used))
        writer.writeheader()
        for row in rows:
            writer.writerow({**row.used, "categories": ";".join(row.used["categories"])})
    return path


def check(db: Database, watched: Watched, count: int, folder: Path) -> None:
    rows = planted(watched, count, seed=count)
    expected = [(row.verdict, row.knowable_from) for row in rows]
    frame = pd.DataFrame([row.used for row in rows])
    for form in (frame, write_csv(folder / "rows.csv", rows)):
        found = judged(db, rows, form)
        wrong = [
            (row.used, wanted, verdict)
            for row, wanted, verdict in zip(rows, expected, found, strict=True)
            if verdict != wanted
        ]
        assert wrong == []


def test_planted_leaks_of_each_kind_are_found_and_clean_rows_are_clean(
    db: Database, watched: Watched, tmp_path: Path
) -> None:
    check(db, watched, 30 * len(KINDS), tmp_path)


@pytest.mark.long
def test_five_thousand_leaks_and_five_thousand_clean_rows(
    db: Database, watched: Watched, tmp_path: Path
) -> None:
    check(db, watched, 5_000, tmp_path)


def test_the_zone_of_the_machine_changes_no_verdict(
    home: Path, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = planted(watched, 100, seed=1)
    naive = [
        {name: _naive(value) for name, value in row.used.items() if name != "categories"}
        for row in rows
    ]
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        with almanac.open(home, clock=lambda: LAST) as db:
            audit = db.audit(pd.DataFrame(naive))
            texts = db.audit(
                [{k: None if v is None else str(v) for k, v in row.items()} for row in naive]
            )
    finally:
        monkeypatch.undo()
        time.tzset()
    expected = [row.verdict for row in rows if row.verdict != "edited_later"]
    for found in (audit, texts):
        verdicts = [row["verdict"] for row in found.verdicts]
        kept = [v for v, row in zip(verdicts, rows, strict=True) if row.verdict != "edited_later"]
        assert kept == expected
        assert found.naive["decided_at"] == len(rows)


def _as_texts(row: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in row.items()}


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_the_rows_of_events_as_of_an_instant_are_clean(db: Database) -> None:
    for at in PULLS[40:41]:
        known = db.events(at, status="all").df().assign(decided_at=at)
        audit = db.audit(known)
        assert audit.counts == {"clean": len(known)}


def test_the_rows_that_the_readme_audits_all_look_ahead(db: Database) -> None:
    (query,) = re.findall(r'<!-- audit -->\n.*\n\S+ sql "(.*) LIMIT 5"', README.read_text("utf-8"))
    rows = db.sql(query).df()
    audit = db.audit(rows)
    assert sum(audit.counts.values()) == len(rows) > 0
    assert set(audit.counts) <= {"date_not_moved_yet", "estimated_as_exact"}
