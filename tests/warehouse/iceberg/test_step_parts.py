"""An as-of join with `event_steps` gives the columns of `attach_known`, from parts that stay."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from almanac.lake import open_lake
from tests.warehouse.iceberg.as_of_joins import (
    count_differences,
    join_in_duckdb,
    join_in_pandas,
    join_in_polars,
)
from tests.warehouse.iceberg.conftest import IcebergHome
from tests.warehouse.iceberg.step_world import FIRST, LATE, QUIET, StepWorld
from tests.warehouse.publish.small_lake import Op, Plan
from warehouse.iceberg.lake_tables import EVENT_STEPS
from warehouse.iceberg.step_parts import StepPart, find_step_parts
from warehouse.iceberg.table_snapshots import read_snapshot


def list_parts(file: Path) -> dict[str, tuple[StepPart, pa.Table]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"ATTACH '{file}' AS published (READ_ONLY)")
        connection.execute("USE published")
        return {part.name: (part, part.list(connection)) for part in find_step_parts(connection)}


def list_steps(file: Path) -> pa.Table:
    return pa.concat_tables([steps for _, steps in list_parts(file).values()])


def test_as_of_join_equals_attach_known(tmp_path: Path) -> None:
    for seed in range(2):
        world = StepWorld(tmp_path / f"{seed}.duckdb", seed)
        rows = world.make_rows(4_000, seed)
        assert {QUIET, LATE} <= set(rows.column("coin").to_pylist())
        with world.open() as database:
            expected = database.attach_known(rows)
        steps = list_steps(world.file)
        for join in (join_in_duckdb, join_in_polars, join_in_pandas):
            whole_us = join is join_in_polars
            found = join(rows, steps)
            assert count_differences(expected, found, whole_us=whole_us) == (0, 0), join
        assert 0 < pc.sum(expected.column("watched")).as_py() < len(rows)
        assert expected.column("next_event_id").null_count < len(rows)


def test_each_timestamp_is_there_once_per_coin(tmp_path: Path) -> None:
    steps = list_steps(StepWorld(tmp_path / "world.duckdb", 1).file)
    assert steps.column_names == [column.name for column in EVENT_STEPS.columns]
    assert len(steps.group_by(["coin", "valid_from"]).aggregate([])) == len(steps)


def test_steps_of_a_month_answer_its_rows_without_earlier_steps(tmp_path: Path) -> None:
    world = StepWorld(tmp_path / "world.duckdb", 2)
    month = datetime(2026, 3, 1, tzinfo=UTC)
    rows = world.make_rows(4_000)
    rows = rows.filter(pc.greater_equal(rows.column("ts"), pa.scalar(month)))
    steps = list_steps(world.file)
    steps = steps.filter(pc.greater_equal(steps.column("valid_from"), pa.scalar(month)))
    with world.open() as database:
        expected = database.attach_known(rows)
    assert count_differences(expected, join_in_duckdb(rows, steps)) == (0, 0)


def test_later_knowledge_changes_no_part_of_a_past_month(tmp_path: Path) -> None:
    before = list_parts(
        StepWorld(tmp_path / "before.duckdb", 3, at=FIRST + timedelta(days=45)).file
    )
    after = list_parts(StepWorld(tmp_path / "after.duckdb", 3).file)
    past = [name for name in before if name < max(before)[:7]]
    assert {"2026-01", "2026-02"} <= set(past) and len(after) > len(before)
    for name in past:
        assert before[name] == after[name]


def test_commit_keeps_the_files_of_past_months(iceberg: IcebergHome) -> None:
    plans = [Plan((Op(0, seed=1), Op(1, seed=2)), coins=3)]
    plans += [Plan(skip=True) for _ in range(40)]
    plans.append(Plan((Op(0, "reschedule", 3), Op(3, seed=4)), coins=3))
    iceberg.publish(plans)
    assert not iceberg.commit().why_failed
    before = step_files(iceberg)
    iceberg.publish([*plans, Plan((Op(1, "reschedule", 9),), coins=3)])
    assert "event_steps" in iceberg.commit().changed
    after = step_files(iceberg)
    assert {name[:7] for name in before} == {"2026-03", "2026-04"}
    assert {name for name in before if name < "2026-04"} < after
    assert not {name for name in before if name > "2026-04--"} & after


def step_files(iceberg: IcebergHome) -> set[str]:
    snapshot = read_snapshot(open_lake(iceberg.root).table("event_steps"))
    return {file.file_path.rpartition("/")[2] for file in snapshot.files}
