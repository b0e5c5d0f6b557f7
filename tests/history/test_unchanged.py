"""Unchanged records are not read again, which changes nothing but the time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.history.stories.handmade import (
    COINS,
    Content,
    HandmadeBatch,
    HandmadeHome,
    land,
)
from tests.history.stories.relanded import home_with_bodies, land_again
from tests.history.test_rebuilds import Tables, assert_same, tables_of
from tests.reading import reading
from tests.warehouse.normalise.catalog_bodies import csv_body, plain, plains
from warehouse.history.merge import merge
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_reader import CsvExport


def export(hour: int, *, lag: int = 0) -> HandmadeBatch:
    """Return an export that shows all events as they were first."""
    content = Content(0, "Launch", 5, False, 1.5, COINS)
    shown = tuple((index, content) for index in range(3))
    return HandmadeBatch("export", hour, lag, "elite", shown, True, (-30, 90), 200)


def test_an_unchanged_record_restores_a_withdrawn_event() -> None:
    look_up = replace(export(4), feed="event", shown=export(4).shown[:1], status=404)
    stale = export(6, lag=3)
    assert_unchanged_equals_reading([export(1), export(2), look_up, export(5), stale])


def test_the_same_cells_below_another_header_are_read_again(story: HandmadeHome) -> None:
    body = csv_body([plain(title="Launch", description="Soon")])
    swapped = body.replace(b"title,description", b"description,title", 1)
    for day, exported in enumerate((body, body, swapped), 1):
        story.csv_export(f"0{day} 06:00", exported)
    story.merge()
    versions = story.rows("SELECT title, description FROM event_versions ORDER BY version")
    assert versions == [("Launch", "Soon"), ("Soon", "Launch")]


def test_rejected_records_among_unchanged_ones_have_their_places(story: HandmadeHome) -> None:
    records = plains(12_000)
    before = csv_body(records)
    assert len(before) > 2 << 20, "enough for several threads to read it"
    for place in (0, 4_000, 7_777, 11_999):
        records[place] = plain(id=f"e{place}", date="soon")
    for place in (3_000, 9_000):
        records[place] = plain(id="")
    story.csv_export("01 06:00", before)
    story.csv_export("02 06:00", csv_body(records))
    with counted() as found:
        story.merge()
    assert found == [12_000 - 6]
    places = story.rows("SELECT position FROM rejects ORDER BY position")
    assert places == [(0,), (3_000,), (4_000,), (7_777,), (9_000,), (11_999,)]


def test_a_record_is_unchanged_until_other_content_is_accepted(tmp_path: Path) -> None:
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
    read = CsvExport.read

    def counting(self: CsvExport, *, finds_unchanged: bool) -> None:
        read(self, finds_unchanged=finds_unchanged)
        if self.counts.unchanged:
            counts.append(self.counts.unchanged)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvExport, "read", counting)
        yield counts


def assert_unchanged_equals_reading(batches: Sequence[HandmadeBatch]) -> None:
    read_export = CsvExport.read
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        unchanged = _merged(batches, Path(folder) / "unchanged")
        patch.setattr(CsvExport, "read", lambda self, **_: read_export(self, finds_unchanged=False))
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
        current = connection.sql(
            "SELECT * EXCLUDE (row_hash) FROM state.current_versions ORDER BY ALL"
        )
        return {**tables_of(home), "current_versions": current.fetchall()}
