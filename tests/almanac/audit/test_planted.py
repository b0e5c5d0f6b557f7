"""Leaks planted into rows made from a sandbox's truth are all found, and clean rows are not."""

import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pandas as pd
import pytest

import almanac
from almanac.database import Database
from tests.almanac.audit.planted import KINDS, PlantedRow, Planter
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.watched_sandbox import LAST, PULLS, Watched, watch


@pytest.fixture(scope="module")
def watched() -> Watched:
    return watch()


@pytest.fixture(scope="module")
def db(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("planted") / "warehouse.duckdb"
    publish_by_hand(path, watched.versions, pulls=PULLS, claims=watched.claims)
    with almanac.open(path, clock=lambda: LAST) as database:
        yield database


def planted(watched: Watched, count: int, seed: int) -> list[PlantedRow]:
    """Return `count` leaks, of each kind as many, and as many clean rows, in random order."""
    planter = Planter(watched.versions, seed)
    leaks = [planter.leak(KINDS[number % len(KINDS)]) for number in range(count)]
    rows = leaks + [planter.clean() for _ in range(count)]
    Random(seed).shuffle(rows)
    return rows


def write_csv(path: Path, rows: list[PlantedRow]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0].used))
        writer.writeheader()
        for row in rows:
            writer.writerow({**row.used, "categories": ";".join(row.used["categories"])})
    return path


@pytest.mark.parametrize("count", [15 * len(KINDS), pytest.param(5_000, marks=pytest.mark.long)])
def test_planted_leaks_of_each_kind_are_found_and_clean_rows_are_clean(
    db: Database, watched: Watched, tmp_path: Path, count: int
) -> None:
    rows = planted(watched, count, seed=count)
    frame = pd.DataFrame([row.used for row in rows])
    for form in (frame, write_csv(tmp_path / "rows.csv", rows)):
        audit = db.audit(form)
        knowable = {(row["row"], row["verdict"]): row["knowable_from"] for row in audit.rows}
        wrong = [
            (row, found["verdict"])
            for row, found in zip(rows, audit.verdicts, strict=True)
            if (row.verdict, row.knowable_from)
            != (found["verdict"], knowable.get((found["row"], found["verdict"])))
        ]
        assert wrong == []
