"""Leaks of more than twenty kinds, in every form: none passes, and no honest row fails."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import almanac
from almanac.audit.fields import GROUPS
from almanac.database import Database
from tests.almanac.audit.worlds import DAY, LAST, PULLS, Planter, Row, World
from tests.almanac.publications import publish_by_hand

Frame = pd.DataFrame
FORMS: dict[str, Callable[[Frame, Path], Any]] = {
    "pandas": lambda frame, folder: frame,
    "Polars": lambda frame, folder: pl.from_arrow(_arrow(frame)),
    "Arrow": lambda frame, folder: _arrow(frame),
    "CSV": lambda frame, folder: _csv(frame, folder / "rows.csv"),
    "Parquet": lambda frame, folder: _parquet(frame, folder / "rows.parquet"),
}
LAYOUTS = ("plain", "days", "categories", "coins", "joined")


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=32)


@pytest.fixture(scope="module")
def db(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("kinds") / "warehouse.duckdb"
    publish_by_hand(path, world.versions, pulls=PULLS, coins=world.coins, at=LAST + DAY)
    with almanac.open(path, clock=lambda: LAST + DAY) as database:
        yield database


def _arrow(frame: Frame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


def _csv(frame: Frame, file: Path) -> Path:
    lists = {
        name: frame[name].map(lambda value: ";".join(value))
        for name in ("categories", "coins")
        if name in frame
    }
    frame.assign(**lists).to_csv(file, index=False)
    return file


def _parquet(frame: Frame, file: Path) -> Path:
    pq.write_table(_arrow(frame), file)
    return file


def rows_of(db: Database, world: World, layout: str, count: int) -> list[Row]:
    """Return about `count` leaks, and as many honest rows."""
    planter = Planter(world)
    if layout != "joined":
        rows: list[Row] = getattr(planter, layout)(count)
        return rows
    asked = [
        {"ts": world.between(PULLS[2], LAST), "coin": world.random.choice(world.coins).slug}
        for _ in range(3 * count)
    ]
    known = db.attach_known(pd.DataFrame(asked), horizon="60d")
    records = known.astype(object).where(known.notna(), None).to_dict("records")
    return planter.joined(records)[: 2 * count]


def check(
    db: Database, world: World, folder: Path, layout: str, form: str, count: int
) -> Counter[str]:
    """Assert that an audit finds each leak and no other; return the kinds of leaks."""
    rows = rows_of(db, world, layout, count)
    frame = pd.DataFrame([row.values for row in rows])
    for name in ("date", "date_end", "cancelled_at", "created_at"):
        if name in frame:
            frame[name] = pd.to_datetime(frame[name], utc=True)
    audit = db.audit(FORMS[form](frame, folder))
    verdicts = [row["verdict"] for row in audit.verdicts]
    reasons = {found["row"]: found["reason"] for found in audit.of_group("unjudged")}
    groups = [GROUPS[verdict] for verdict in verdicts]
    places = range(len(rows))
    passed = [(rows[n], verdicts[n]) for n in places if rows[n].kind and groups[n] != "leak"]
    flagged = [(rows[n], verdicts[n]) for n in places if not rows[n].kind and groups[n] != "clean"]
    assert (passed, flagged) == ([], [])
    assert all(reasons.values())
    return Counter(row.kind for row in rows if row.kind)


@pytest.mark.parametrize(("layout", "form"), list(zip(LAYOUTS, FORMS, strict=True)))
def test_each_planted_leak_is_found_and_no_honest_row_is_flagged(
    db: Database, world: World, tmp_path: Path, layout: str, form: str
) -> None:
    assert check(db, world, tmp_path, layout, form, 120)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_two_thousand_leaks_of_thirty_kinds_and_as_many_honest_rows(
    db: Database, world: World, tmp_path: Path, form: str
) -> None:
    kinds: Counter[str] = Counter()
    for layout, count in zip(LAYOUTS, (1_200, 250, 250, 250, 400), strict=True):
        kinds += check(db, world, tmp_path, layout, form, count)
    assert len(kinds) >= 25
    assert kinds.total() >= 2_000
