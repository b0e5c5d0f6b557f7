"""The same batches make the same history, however they are landed and merged."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.model.comparison import (
    EVENT_COLUMNS,
    VERSION_COLUMNS,
    differences,
    events_of,
    published,
    versions_of,
)
from tests.history.model.oracle import Oracle
from tests.history.stories.example_counts import examples
from tests.history.stories.handmade import HandmadeBatch, handmade_batches, land
from tests.history.stories.relanded import home_with_bodies, land_again
from tests.history.stories.snapshots import HandmadeShowing
from tests.reading import reading
from warehouse.history.merge import merge, rebuild
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing

Tables = dict[str, list[tuple[object, ...]]]
OUTSIDE_REBUILD = {"requests", "usage"}
"""Tables whose names start with `_`, in which a file describes itself, are outside too."""
UNLIKE = {"landed_at", "published_seq"}
"""Columns that tell when this machine landed a batch, and in which order it published versions."""


@st.composite
def mergings(draw: st.DrawFn) -> tuple[list[HandmadeBatch], list[list[int]]]:
    """Draw some batches, and parts of them in any order, some twice, none omitted."""
    batches = draw(st.lists(handmade_batches, min_size=4, max_size=9))
    places = draw(st.permutations(range(len(batches))))
    repeated = draw(st.lists(st.sampled_from(places), max_size=3))
    order = [*places, *repeated]
    cuts = sorted(draw(st.sets(st.integers(1, len(order) - 1), max_size=3)))
    return batches, [
        order[since:until] for since, until in zip([0, *cuts], [*cuts, len(order)], strict=True)
    ]


@pytest.mark.timeout(3_600)
@given(mergings())
@examples(2, 300)
def test_batches_in_any_order_have_the_history_of_the_oracle(
    merging: tuple[list[HandmadeBatch], list[list[int]]],
) -> None:
    """Also of contents that no world shows: updatedAt that goes back, cancelled events that
    return."""
    batches, parts = merging
    with TemporaryDirectory() as folder:
        home, manifests = _merged(batches, parts, Path(folder))
        _assert_as_oracle(home, batches, manifests)
        assert_as_rebuild(home)


def tables_of(home: Home) -> Tables:
    """Return every row of every published table without the machine's own times, in order."""
    tables: Tables = {}
    with reading(home) as connection:
        columns = connection.sql(
            "SELECT table_name, column_name FROM duckdb_columns() "
            "WHERE table_name IN (SELECT table_name FROM duckdb_tables()) "
            "AND database_name = current_database() AND schema_name = 'main' "
            "ORDER BY table_name, column_index"
        ).fetchall()
        for table in sorted({name for name, _ in columns} - OUTSIDE_REBUILD):
            names = [column for name, column in columns if name == table and column not in UNLIKE]
            names_text = ", ".join(f'"{name}"' for name in names)
            rows = connection.sql(f'SELECT {names_text} FROM "{table}" ORDER BY ALL').fetchall()
            tables[table] = rows
    return tables


def assert_same(found: Tables, expected: Tables, what: str) -> None:
    assert found.keys() == expected.keys()
    for table in expected:
        lost = [row for row in expected[table] if row not in found[table]][:3]
        more = [row for row in found[table] if row not in expected[table]][:3]
        assert found[table] == expected[table], f"{table} of {what}: without {lost}, with {more}"


def assert_as_rebuild(home: Home) -> None:
    """Assert that a rebuild gives the tables of a home; it changes the home."""
    merged = tables_of(home)
    rebuild(home)
    assert_same(merged, tables_of(home), "what was merged, against its rebuild,")


def _assert_as_oracle(
    home: Home, batches: Sequence[HandmadeBatch], manifests: Sequence[Manifest]
) -> None:
    showing = HandmadeShowing(batches, manifests)
    oracle = Oracle(showing)
    for observation in showing.observations:
        oracle.fold(observation)
    with reading(home) as connection:
        versions = published(connection, "event_versions", VERSION_COLUMNS)
        events = published(connection, "events", EVENT_COLUMNS)
    for expected, found in ((versions_of(oracle), versions), (events_of(oracle), events)):
        report = differences(expected, found, showing.observations, oracle.events)
        assert not report, report


def _merged(
    batches: Sequence[HandmadeBatch], parts: Sequence[Sequence[int]], root: Path
) -> tuple[Home, list[Manifest]]:
    source = Landing(root / "source")
    manifests = [land(batch, source, number) for number, batch in enumerate(batches)]
    home = home_with_bodies(root / "source", root / "home")
    for part in parts:
        land_again(root / "source", home, [manifests[place].batch_id for place in part])
        merge(home)
    return home, manifests
