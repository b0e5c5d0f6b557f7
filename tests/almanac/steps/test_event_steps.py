"""An as-of join with `event_steps` gives the columns of `attach_known`."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from almanac.database import open_database
from almanac.next_events import list_steps
from tests.almanac.publications import publish_by_hand
from tests.almanac.steps.as_of_joins import count_differences, join_in_duckdb, join_in_pandas
from tests.almanac.steps.step_world import FIRST, LATE, QUIET, StepWorld
from tests.warehouse.answers.handmade import Known


def steps_of(world: StepWorld) -> pa.Table:
    with world.open() as database:
        return list_steps(database.reader)


def test_as_of_join_equals_attach_known(tmp_path: Path) -> None:
    for seed in range(2):
        world = StepWorld(tmp_path / f"{seed}.duckdb", seed)
        rows = world.make_rows(2_000, seed)
        assert {QUIET, LATE} <= set(rows.column("coin").to_pylist())
        with world.open() as database:
            expected = database.attach_known(rows)
        steps = steps_of(world)
        for join in (join_in_duckdb, join_in_pandas):
            assert count_differences(expected, join(rows, steps)) == (0, 0), join
        assert 0 < pc.sum(expected.column("watched")).as_py() < len(rows)
        assert expected.column("next_event_id").null_count < len(rows)


def test_each_timestamp_is_there_once_per_coin(tmp_path: Path) -> None:
    world = StepWorld(tmp_path / "world.duckdb", 1)
    steps = steps_of(world)
    assert len(steps.group_by(["coin", "valid_from"]).aggregate([])) == len(steps) > 100
    first = min(world.pulls)
    assert pc.min(steps.column("valid_from")).as_py() == first
    at_first = steps.filter(pc.equal(steps.column("valid_from"), pa.scalar(first)))
    assert at_first.column("coin").to_pylist() == world.known_coins()


def test_without_a_pull_there_is_no_step(tmp_path: Path) -> None:
    known = Known(event_id="a", known_from=FIRST, date=FIRST, coins=("bitcoin",))
    file = publish_by_hand(tmp_path / "warehouse.duckdb", [known], pulls=[])
    with open_database(file) as database:
        assert list_steps(database.reader).num_rows == 0
