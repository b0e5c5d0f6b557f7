"""Unchanged records are not read again, which changes nothing but the time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.stories.handmade import (
    COINS,
    DAY,
    SOURCE,
    STARTS,
    Content,
    HandmadeBatch,
    handmade_batches,
    land,
)
from tests.history.stories.lengths import a_few, at_length
from tests.history.stories.merged_story import reading
from tests.history.stories.relanded import home_with_bodies, land_again
from tests.history.test_rebuilds import Tables, assert_same, tables_of
from tests.warehouse.normalise.catalog_bodies import csv_body, plain, plains
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.landing import Landing, import_export
from warehouse.normalise.csv_reader import _CsvExport

EXAMPLES, EXAMPLES_AT_LENGTH = 4, 400

_few = st.builds(
    Content,
    step=st.integers(0, 1),
    title=st.sampled_from(("Launch", "Halving")),
    day=st.just(5),
    estimated=st.just(False),
    # A score above the scale: the record is rejected.
    score=st.sampled_from((1.5, 1.5, 6.0, 600.0)),
    coins=st.just(COINS),
)
_shown = st.lists(st.tuples(st.integers(0, 2), _few), min_size=1, max_size=4).map(tuple)
exports = st.builds(
    HandmadeBatch,
    feed=st.just("export"),
    hour=st.integers(1, 71),
    lag=st.integers(0, 3),
    plan=st.just("elite"),
    shown=_shown,
    complete=st.just(True),
    days=st.just((-30, 90)),
    status=st.just(200),
)


@st.composite
def exports_with_others_between(draw: st.DrawFn) -> list[HandmadeBatch]:
    """Draw exports, some with the body of another, and sometimes a batch of another kind."""
    first = draw(st.lists(exports, min_size=2, max_size=4))
    repeated = [
        HandmadeBatch(
            "export", hour, 0, "elite", draw(st.sampled_from(first)).shown, True, (-30, 90), 200
        )
        for hour in draw(st.lists(st.integers(1, 71), min_size=1, max_size=4))
    ]
    return [*first, *repeated, *draw(st.lists(handmade_batches, max_size=4))]


@given(exports_with_others_between())
@a_few(EXAMPLES)
def test_unchanged_records_give_the_tables_that_reading_all_of_them_gives(
    batches: list[HandmadeBatch],
) -> None:
    assert_unchanged_equals_reading(batches)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@given(exports_with_others_between())
@at_length(EXAMPLES_AT_LENGTH)
def test_unchanged_records_give_the_same_tables_at_length(batches: list[HandmadeBatch]) -> None:
    assert_unchanged_equals_reading(batches)


def export(hour: int, *, lag: int = 0) -> HandmadeBatch:
    """Return an export that shows all events as they were first."""
    content = Content(0, "Launch", 5, False, 1.5, COINS)
    shown = tuple((index, content) for index in range(3))
    return HandmadeBatch("export", hour, lag, "elite", shown, True, (-30, 90), 200)


def test_an_unchanged_record_of_an_older_time_is_stale() -> None:
    assert_unchanged_equals_reading([export(1), export(4), export(5, lag=3)])


def test_an_unchanged_record_restores_a_withdrawn_event() -> None:
    look_up = replace(export(4), feed="event", shown=export(4).shown[:1], status=404)
    assert_unchanged_equals_reading([export(1), export(2), look_up, export(5)])


def test_the_same_cells_below_another_header_are_read_again(tmp_path: Path) -> None:
    body = csv_body([plain(title="Launch", description="Soon")])
    swapped = body.replace(b"title,description", b"description,title", 1)
    assert body != swapped
    versions = imported(tmp_path, (body, "elite"), (body, "elite"), (swapped, "elite"))
    assert [version[:2] for version in versions] == [("Launch", "Soon"), ("Soon", "Launch")]


def test_the_same_record_on_a_plan_that_shows_more_is_read_again(tmp_path: Path) -> None:
    body = csv_body([plain(sourceUrl="https://proof.example/1")])
    versions = imported(tmp_path, (body, "standard"), (body, "standard"), (body, "elite"))
    assert [version[2] for version in versions] == [None, "https://proof.example/1"]


def test_rejected_records_among_many_unchanged_ones_have_their_places_in_the_file(
    tmp_path: Path,
) -> None:
    records = plains(12_000)
    before = csv_body(records)
    assert len(before) > 2 << 20, "enough for several threads to read it"
    for place in (0, 4_000, 7_777, 11_999):
        records[place] = plain(id=f"e{place}", date="soon")
    for place in (3_000, 9_000):
        records[place] = plain(id="")
    home = landed(tmp_path, (before, "elite"), (csv_body(records), "elite"))
    with counted() as found:
        merge(home)
    assert found == [12_000 - 6]
    with reading(home) as connection:
        places = connection.sql("SELECT position FROM rejects ORDER BY position").fetchall()
    assert places == [(0,), (3_000,), (4_000,), (7_777,), (9_000,), (11_999,)]


def imported(folder: Path, *bodies: tuple[bytes, str]) -> list[tuple[Any, ...]]:
    """Return title, description and source of each version after some exports, a day each."""
    home = landed(folder, *bodies)
    merge(home)
    with reading(home) as connection:
        return connection.sql(
            "SELECT title, description, source_url FROM event_versions "
            "WHERE version > 0 ORDER BY version"
        ).fetchall()


def landed(folder: Path, *bodies: tuple[bytes, str]) -> Home:
    """Return a home with some exports, a day each, each of its plan."""
    home = Home(folder / "home")
    file = folder / "export.csv"
    for day, (body, plan) in enumerate(bodies):
        file.write_bytes(body)
        at = STARTS + day * DAY
        import_export(home.landing, file, content_at=at, plan=plan, source=SOURCE, now=at)
    return home


def test_a_record_is_unchanged_until_another_content_of_its_event_is_accepted(
    tmp_path: Path,
) -> None:
    other = replace(export(3).shown[1][1], title="Halving")
    delivery = replace(export(3), feed="deliveries", shown=((1, other),))
    with counted() as found:
        _merged([export(1), export(2), delivery, export(4), export(5)], tmp_path)
    assert found == [3, 2, 3]


def test_a_repeated_body_with_two_records_of_an_event_does_not_show_an_absent_event() -> None:
    first = export(1)
    repeated = replace(export(25), shown=(first.shown[0], first.shown[1], first.shown[1]))
    assert_unchanged_equals_reading([first, repeated, replace(repeated, hour=49)])


@contextmanager
def counted() -> Iterator[list[int]]:
    """Record the number of unchanged records of each export that has some."""
    counts: list[int] = []
    find_unchanged = _CsvExport._find_unchanged

    def counting(self: _CsvExport, *given: Any) -> None:
        find_unchanged(self, *given)
        if self.counts.unchanged:
            counts.append(self.counts.unchanged)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_CsvExport, "_find_unchanged", counting)
        yield counts


def assert_unchanged_equals_reading(batches: Sequence[HandmadeBatch]) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        unchanged = _merged(batches, Path(folder) / "unchanged")
        patch.setattr(_CsvExport, "_find_unchanged", lambda self, *given: None)
        read = _merged(batches, Path(folder) / "read")
        assert_same(unchanged, read, "with unchanged records, against reading all,")


def _merged(batches: Sequence[HandmadeBatch], root: Path) -> Tables:
    """Return the rows of the warehouse after some batches, and when each event was seen."""
    source = Landing(root / "source")
    manifests = [land(batch, source, number) for number, batch in enumerate(batches)]
    home = home_with_bodies(root / "source", root / "home")
    land_again(root / "source", home, [manifest.batch_id for manifest in manifests])
    merge(home)
    with reading(home) as connection:
        seen = connection.sql("SELECT * EXCLUDE (row_md5) FROM state.event_seen ORDER BY ALL")
        return {**tables_of(home), "event_seen": seen.fetchall()}
