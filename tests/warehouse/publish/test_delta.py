"""A delta gives the same rows as a full build, after any change of the days."""

from collections import Counter
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warehouse.publish import contents as publish_contents

from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.schema import ddl
from warehouse.schema.tables import FIRST_OBSERVED, PUBLISHED, TABLES, Table
from warehouse.schema.views import EVENT_CLAIMS

ops = st.builds(
    Op,
    event=st.integers(0, 4),
    kind=st.sampled_from(["change", "reschedule", "cancel", "see", "look", "miss"]),
    seed=st.integers(0, 20),
    hour=st.integers(6, 8),
)
plans = st.builds(
    Plan,
    ops=st.lists(ops, max_size=4).map(lambda drawn: tuple(sorted(drawn, key=lambda op: op.hour))),
    coins=st.integers(0, 3),
    rejects=st.integers(0, 2),
    names=st.sampled_from([0, 0, 1, 2]),
    skip=st.sampled_from([False, False, False, True]),
)


def differences(left: Path, right: Path) -> dict[str, tuple[int, int]]:
    """Return for each table that differs how many rows only the one or the other file has."""
    found: dict[str, tuple[int, int]] = {}
    with duckdb.connect() as connection:
        for alias, path in (("l", left), ("r", right)):
            connection.execute(f"ATTACH '{path}' AS {alias} (READ_ONLY)")
        for table in (*TABLES, EVENT_CLAIMS, PUBLISHED, FIRST_OBSERVED):
            # Not by EXCEPT: planning it takes longer than reading these few rows.
            ours, theirs = (
                Counter(map(repr, connection.execute(f"FROM {a}.{table.qualified}").fetchall()))
                for a in ("l", "r")
            )
            if ours != theirs:
                found[table.name] = ((ours - theirs).total(), (theirs - ours).total())
    return found


def lake_events_differ(lake: SmallLake) -> int:
    """Return how many rows only the months of the lake or only the published events have."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{lake.warehouse}' AS w (READ_ONLY)")
        published = (
            "SELECT * EXCLUDE (last_seen_at, missing_since, content_at), "
            "strftime(date, '%Y-%m') AS event_month FROM w.events"
        )
        files = sorted(str(path) for path in lake.storage.root.glob("events/*/*.parquet"))
        if not files:
            return len(connection.execute(published).fetchall())
        months = "FROM read_parquet($files, hive_partitioning = true, hive_types_autocast = false)"
        both = (
            f"(({published}) EXCEPT ALL ({months})) UNION ALL (({months}) EXCEPT ALL ({published}))"
        )
        return len(connection.execute(both, {"files": files}).fetchall())


def check_against_full(lake: SmallLake, other: Path) -> None:
    contents = lake.publish().contents
    delta = lake.warehouse.rename(other)
    assert lake.publish(full=True).contents == contents
    assert differences(delta, lake.warehouse) == {}


histories = given(
    before=st.lists(plans, min_size=1, max_size=4),
    kept=st.integers(0, 4),
    after=st.lists(plans, min_size=1, max_size=3),
    whole_above=st.sampled_from([0, 10_000]),
)


@settings(max_examples=6, deadline=None)
@histories
def test_a_delta_equals_a_full_build_even_after_days_are_refolded(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Plan],
    kept: int,
    after: list[Plan],
    whole_above: int,
) -> None:
    home = tmp_path_factory.mktemp("home")
    check_history(home, before, kept, after, whole_above)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@settings(max_examples=300, deadline=None)
@histories
def test_a_delta_equals_a_full_build_for_many_histories(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Plan],
    kept: int,
    after: list[Plan],
    whole_above: int,
) -> None:
    home = tmp_path_factory.mktemp("home")
    check_history(home, before, kept, after, whole_above)


def check_history(
    home: Path,
    before: list[Plan],
    kept: int,
    after: list[Plan],
    whole_above: int,
) -> None:
    lake = SmallLake(home)
    lake.set_plans(before)
    lake.publish()
    lake.set_plans([*before[:kept], *after])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publish_contents, "ROWS_ALWAYS", whole_above)
        report = lake.publish()
    if whole_above and lake.chain:
        assert report.mode != "full"
    assert lake_events_differ(lake) == 0
    check_against_full(lake, home / "delta.duckdb")


def test_many_deltas_in_a_row_equal_a_full_build(
    tmp_path: Path,
) -> None:
    lake = SmallLake(tmp_path)
    history: list[Plan] = []
    for number in range(4):
        ops = (Op(number % 3, seed=number), Op(5, "see"), Op(number, "look"))
        history.append(Plan(ops, coins=number % 3, names=number % 3))
        lake.set_plans(history)
        lake.publish()
    assert lake_events_differ(lake) == 0
    check_against_full(lake, tmp_path / "delta.duckdb")


def test_tables_whose_checkpoint_file_is_the_same_keep_their_rows_and_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SmallLake(tmp_path)
    history = [Plan((Op(0, seed=2), Op(1, seed=2), Op(1, "cancel")), coins=2)]
    lake.set_plans(history)
    rows = lake.publish().rows
    unchanged = {"coins", "categories", "cancellations"}
    assert all(rows[name] for name in unchanged)
    lake.set_plans([*history, Plan((Op(0, "change", seed=3),))])
    compared: list[str] = []
    want = ddl.want

    def noting(table: Table, columns: tuple[str, ...], query: str) -> str:
        compared.append(table.name)
        return want(table, columns, query)

    monkeypatch.setattr(ddl, "want", noting)
    later = lake.publish().rows
    assert {"event_versions", "event_coins"} <= {*compared}
    assert not unchanged & {*compared}
    assert [later[name] for name in unchanged] == [rows[name] for name in unchanged]
    check_against_full(lake, tmp_path / "delta.duckdb")


def test_links_have_the_new_names_of_coins_that_only_events_name(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    history = [Plan((Op(0, seed=1), Op(1, seed=1)))]
    lake.set_plans(history)
    before = lake.publish().contents
    lake.set_plans([*history, Plan((Op(0, "see"),), names=1)])
    after = lake.publish().contents
    assert after["coins"] == before["coins"]
    assert after["event_coins"] != before["event_coins"]
    check_against_full(lake, tmp_path / "delta.duckdb")


def test_the_content_of_a_table_differs_only_if_its_rows_do(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    history = [Plan((Op(0, seed=1),), coins=2)]
    lake.set_plans(history)
    first = lake.publish().contents
    lake.set_plans([*history, Plan((Op(0, "see"),))])
    seen = lake.publish().contents
    assert {name for name in first if first[name] != seen[name]} == {"batches", "coverage"}
    lake.set_plans([*history, Plan((Op(0, "see"),)), Plan((Op(0, "miss"),))])
    missing = lake.publish().contents
    assert missing["events"] != seen["events"]
    assert missing["event_versions"] == seen["event_versions"]
    lake.set_plans(history)
    assert lake.publish().contents == first


def test_removed_days_are_removed_from_the_tables(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    history = [Plan((Op(number, seed=number),), coins=2, rejects=1) for number in range(4)]
    lake.set_plans(history)
    lake.publish()
    lake.set_plans(history[:2])
    assert lake.publish().mode == "delta"
    assert lake_events_differ(lake) == 0
    check_against_full(lake, tmp_path / "delta.duckdb")


def test_too_many_changes_cause_a_full_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SmallLake(tmp_path)
    lake.set_plans([Plan((Op(0, seed=1), Op(1, seed=1)))])
    lake.publish()
    lake.set_plans([Plan((Op(0, seed=2), Op(1, seed=2)))])
    monkeypatch.setattr(publish_contents, "ROWS_ALWAYS", 0)
    assert "2 of 2 rows of event_versions were removed" in str(lake.publish().why_full)
