"""Records of an export that did not change are told from the others by a digest of their lines."""

import csv
import gzip
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.history.stories.example_counts import examples
from tests.warehouse.normalise.catalog_bodies import BatchReader, csv_body, plain, plains
from warehouse.normalise.csv_reader import CsvExport, KnownLists
from warehouse.normalise.normalise import NormalisedBatch, normalise


@pytest.fixture(scope="module")
def batches(
    tmp_path_factory: pytest.TempPathFactory, connection: duckdb.DuckDBPyConnection
) -> BatchReader:
    return BatchReader(tmp_path_factory.mktemp("landing"), connection)


CELL = st.text('ab ,"\n\r;é\0', max_size=6)
ROW = st.builds(
    plain,
    id=st.sampled_from(["e1", "e2", "e3", "e4", ""]),
    title=st.sampled_from(["Launch", "Halving", ""]),
    description=CELL,
    date=st.sampled_from(["2026-10-08T00:00:00Z", "2026-10-08T00:00:00Z", "soon"]),
    updatedAt=st.sampled_from(["2026-02-02T10:00:00Z", "2026-02-03T10:00:00Z"]),
)
ODD = st.one_of(
    st.sampled_from([b"", b" ", b"x,y", b"," * 18, b'e9,"open', b"caf\xe9" + b"," * 17]),
    # One row in odd forms: quotes in the middle, a lone CR, NUL, a space before a quote.
    st.sampled_from(
        [b'5" disk', b'"a"b"', b'"a" ', b' "a"', b"a\rb", b"a\0b", b"\x01", b'"a\nb']
    ).map(lambda cell: b"e3,s,Launch," + cell + b",,2026-10-08T00:00:00Z" + b"," * 12),
    st.binary(max_size=12),
)


@dataclass(frozen=True)
class Form:
    """The form of a whole file."""

    end: str
    quoting: int
    bom: bool
    last_end: bool
    packed: bool

    def body(self, records: list[dict[str, str] | bytes]) -> bytes:
        end = self.end.encode()
        lines = [csv_body([], end=self.end).removesuffix(end)]
        for record in records:
            if isinstance(record, bytes):
                lines.append(record)
                continue
            cells = {name: cell.replace("\n", self.end) for name, cell in record.items()}
            whole = csv_body([cells], end=self.end, quoting=self.quoting)
            lines.append(whole.removeprefix(lines[0] + end).removesuffix(end))
            if self.quoting == csv.QUOTE_ALL:
                header = csv_body([], end=self.end, quoting=self.quoting)
                lines[-1] = whole.removeprefix(header).removesuffix(end)
        body = (b"\xef\xbb\xbf" if self.bom else b"") + end.join(lines)
        body += end if self.last_end else b""
        return gzip.compress(body, mtime=0) if self.packed else body


FORM = st.builds(
    Form,
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    bom=st.booleans(),
    last_end=st.booleans(),
    packed=st.booleans(),
)
RECORDS = st.lists(st.one_of(ROW, ROW, ROW, ODD), max_size=6)
PLAIN_FORM = Form("\r\n", csv.QUOTE_MINIMAL, bom=False, last_end=True, packed=False)


@st.composite
def two_exports(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw an export, and a second one with some of its records and with new ones, in any order."""
    before = draw(st.lists(st.one_of(ROW, ROW, ROW, ROW, ROW, ODD), min_size=1, max_size=6))
    kept = draw(st.lists(st.sampled_from(before), max_size=8))
    after = draw(st.permutations([*kept, *draw(RECORDS)]))
    form = draw(FORM)
    other = draw(st.one_of(st.just(form), st.just(form), FORM))
    return form.body(before), other.body(list(after))


@dataclass(frozen=True)
class Read:
    counts: NormalisedBatch
    rows: list[dict[str, Any]]
    rejected: list[tuple[int, str, str]]
    unchanged: list[str]


def read_export(
    batches: BatchReader,
    body: bytes,
    *,
    finds_unchanged: bool = False,
    plan: str = "elite",
    known: KnownLists | None = None,
) -> Read:
    batches.manifest = batches.land("export", body, plan=plan)
    counts = normalise(
        batches.connection,
        batches.landing,
        batches.manifest,
        known=known,
        finds_unchanged=finds_unchanged,
    )
    ids = batches.connection.execute("SELECT event_id FROM unchanged ORDER BY 1").fetchall()
    return Read(counts, batches.seen(), batches.rejected(), [event_id for (event_id,) in ids])


def accept_rows(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep the digest of the newest row of each event, as the fold does."""
    connection.execute(
        """
        CREATE OR REPLACE TABLE current_versions AS
        SELECT event_id, row_hash FROM seen
        QUALIFY row_number() OVER (
            PARTITION BY event_id ORDER BY updated_at DESC NULLS LAST, position DESC
        ) = 1
        """
    )


def check_same(batches: BatchReader, before: bytes, after: bytes) -> Read:
    """Check that an export is read as the tolerant reader reads all of its records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvExport, "_read_records", lambda *_, **__: None)
        whole = read_export(batches, after)
    read_export(batches, before)
    accept_rows(batches.connection)
    quick = read_export(batches, after, finds_unchanged=True)
    for name in ("arrived", "good", "rejected", "duplicates", "quarantine"):
        assert getattr(quick.counts, name) == getattr(whole.counts, name), name
    assert quick.rejected == whole.rejected
    assert quick.rows == [row for row in whole.rows if row["event_id"] not in quick.unchanged]
    assert len(quick.rows) + len(quick.unchanged) == len(whole.rows)
    return quick


REST = b",2026-10-08T00:00:00Z" + b"," * 12
OPENING = b'e1,s,5" disk,"open'
CLOSING = b'x,y,z,end",' + REST
"""A line with a quote in a cell and an open quote, so two, and the line that ends the open one. It
is a row of its own if the quotes are only counted."""
ODD_QUOTE = b'e2,s,6" disk,plain,' + REST
LIKE_TWO = b'e3,s,7" disk,"open\nrest",5" x' + REST


@examples(4, 500)
@given(bodies=two_exports())
@example(
    bodies=(
        PLAIN_FORM.body([OPENING, CLOSING, ODD_QUOTE]),
        PLAIN_FORM.body([OPENING, CLOSING.replace(b"end", b"other"), ODD_QUOTE, LIKE_TWO]),
    )
)
@example(bodies=(PLAIN_FORM.body([plain()]), PLAIN_FORM.body([plain(), b"," * 17])))
@example(bodies=(PLAIN_FORM.body([plain()]), PLAIN_FORM.body([plain(), plain(title="a\0b")])))
@example(
    bodies=(
        PLAIN_FORM.body([plain(), plain(id="e2", description="a\n\nb")]),
        PLAIN_FORM.body([plain(id="e2", description="a\n\nb"), plain(id="e3"), plain()]),
    )
)
@example(bodies=(PLAIN_FORM.body([plain(), plain()]), PLAIN_FORM.body([plain(), plain()])))
@example(bodies=(PLAIN_FORM.body([plain()]), PLAIN_FORM.body([plain(), plain(title="Other")])))
@example(bodies=(PLAIN_FORM.body([plain()]), PLAIN_FORM.body([b'5" disk,', plain(), b'5" x,'])))
def test_any_export_is_read_as_by_the_tolerant_reader(
    batches: BatchReader, bodies: tuple[bytes, bytes]
) -> None:
    check_same(batches, *bodies)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_unchanged_records_are_found_beside_new_ones_also_with_line_ends_in_texts(
    batches: BatchReader, end: str
) -> None:
    old = [plain(), plain(id="e2", description="First\n\nsecond"), plain(id="e3", title='a "b"')]
    new = [plain(id="e4", description="Third\nfourth"), *old[::-1]]
    quick = check_same(batches, csv_body(old, end=end), csv_body(new, end=end))
    assert quick.unchanged == ["e1", "e2", "e3"]
    assert "read by the tolerant reader" not in quick.counts.notes


@pytest.mark.parametrize(
    "reading", [{"plan": "free"}, {"known": KnownLists(separator="|")}], ids=["plan", "separator"]
)
def test_records_that_are_read_in_another_way_are_new(
    batches: BatchReader, reading: dict[str, Any]
) -> None:
    body = csv_body(plains(3))
    read_export(batches, body)
    accept_rows(batches.connection)
    assert read_export(batches, body, finds_unchanged=True, **reading).unchanged == []
    assert len(read_export(batches, body, finds_unchanged=True).unchanged) == 3


def test_digests_of_another_kind_match_no_record(batches: BatchReader) -> None:
    body = csv_body(plains(30))
    whole = read_export(batches, body)
    accept_rows(batches.connection)
    batches.connection.execute("UPDATE current_versions SET row_hash = hash(event_id)")
    quick = read_export(batches, body, finds_unchanged=True)
    assert (quick.unchanged, quick.rows, quick.counts) == ([], whole.rows, whole.counts)
