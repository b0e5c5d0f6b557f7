"""The records of a CSV file, read and counted, compared with Python's csv alone."""

import csv
import io

from hypothesis import example, given
from hypothesis import strategies as st

from almanac.reading.csv_file import Record, RecordReader

TEXTS = st.text(alphabet='ab,"\n\r;é', max_size=40)


def counted(data: bytes, step: int) -> RecordReader:
    """Return a reader that counted the records; another one read the same number."""
    reader = reader_of(data, step)
    assert reader.count() == len(read(data, step))
    return reader


def read(data: bytes, step: int) -> list[Record]:
    return list(reader_of(data, step))


def reader_of(data: bytes, step: int) -> RecordReader:
    return RecordReader(data[at : at + step] for at in range(0, len(data), step))


def rows_of(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


@given(text=TEXTS, step=st.integers(1, 7))
@example(text='a"b"\n"c', step=1)
@example(text='"a"b"c\nd"\n', step=2)
@example(text="a\r\n\r\nb\r", step=2)
@example(text='""\n""', step=1)
def test_any_text_in_chunks_of_any_size_has_the_records_that_csv_reads(
    text: str, step: int
) -> None:
    rows = rows_of(text)
    counter = counted(text.encode(), step)
    assert counter.records == len(rows)
    if rows:
        assert counter.last_fields == len(rows[-1])
    assert [record.cells for record in read(text.encode(), step)] == rows


def test_an_end_inside_quotes_and_a_missing_line_end_are_detected() -> None:
    counter = counted(b'a,b\r\n1,"two\r\n', 4)
    assert counter.is_open
    assert counter.records == 2
    counter = counted(b"a,b,c\n1,2,3\n4,5", 3)
    assert not counter.ends_with_line_end
    assert counter.last_fields == 2


def test_an_empty_input_has_no_records() -> None:
    assert counted(b"", 1).records == 0
    assert counted(b"\xef\xbb\xbf", 1).records == 0
