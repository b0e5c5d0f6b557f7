"""Records of CSV files are counted independently of the parser; none vanishes in a quoted field."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from almanac.core.errors import InvalidArgument
from almanac.reading import csv_file
from almanac.reading.csv_file import RecordReader, count_plain_records
from almanac.user_files import CsvFile

HEADER = "decided_at,event_id,impact,note\n"
ROWS = [f"2026-03-{day:02}T12:00:00Z,event-{day},7.5,text {day}\n" for day in range(1, 21)]
_TEXTS = st.text(st.sampled_from('ab1 ,;"\n\té€'), max_size=12)


def read(path: Path, data: bytes) -> tuple[list[dict[str, str]], dict[int, str]]:
    """Return the readable rows of a file, and why the others are not."""
    path.write_bytes(data)
    broken: dict[int, str] = {}
    file = CsvFile(path)
    batches = list(file.batches(file.names, broken.__setitem__))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(set(rows[number - 1].values()) == {None} for number in broken)
    return [row for number, row in enumerate(rows, 1) if number not in broken], broken


@given(
    rows=st.lists(st.tuples(st.just("2026-03-01"), _TEXTS, _TEXTS), max_size=8),
    delimiter=st.sampled_from(",;\t|"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    step=st.integers(1, 40),
)
@example(
    rows=[("2026-03-01", ",", " ")], delimiter=",", line_end="\n", quoting=csv.QUOTE_MINIMAL, step=1
)
def test_every_record_of_a_sound_file_is_read_whatever_its_texts(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    delimiter: str,
    line_end: str,
    quoting: int,
    step: int,
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=line_end, quoting=quoting)
    writer.writerow(["a", "b", "c"])
    for row in rows:
        writer.writerow(row)
    data = text.getvalue().encode()
    folder = tmp_path_factory.mktemp("sound")
    found, broken = read(folder / "rows.csv", data)
    assert [tuple(row.values()) for row in found] == rows
    assert not broken
    for take in (RecordReader.count, lambda reader: len(list(reader))):
        chunks = (data[start : start + step] for start in range(0, len(data), step))
        reader = RecordReader(chunks, delimiter=delimiter, fields=3, strict=True)
        assert take(reader) == reader.records == len(rows) + 1


@given(
    places=st.lists(st.integers(0, sum(map(len, ROWS)) - 1), min_size=1, max_size=3),
    fault=st.sampled_from(["added", "added to quoted fields", "lost"]),
)
def test_no_row_vanishes_in_a_field_whose_quotes_are_there_by_accident(
    tmp_path_factory: pytest.TempPathFactory, places: list[int], fault: str
) -> None:
    text = "".join(ROWS)
    if fault != "added":
        text = "".join(f'"{row.strip()}"\n'.replace(",", '","') for row in ROWS)
    if fault == "lost":
        before, _, after = text[places[0] :].partition('"')
        text = text[: places[0]] + before + after
    else:
        for place in places:
            text = text[:place] + '"' + text[place:]
    path = tmp_path_factory.mktemp("stray") / "rows.csv"
    try:
        found, broken = read(path, (HEADER + text).encode())
    except InvalidArgument as error:
        assert str(path) in str(error)
        assert "line" in str(error)
    else:
        assert len(found) + len(broken) == len(ROWS)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [(3, None), (3, 4), (3, 9), (20, None), (1, 20)],
)
def test_a_quote_that_opens_by_accident_is_refused_with_its_line(
    tmp_path: Path, opening: int, closing: int | None
) -> None:
    rows = list(ROWS)
    rows[opening - 1] = rows[opening - 1].replace("text", '"text, and')
    if closing is not None:
        rows[closing - 1] = rows[closing - 1].replace("\n", '"\n')
    with pytest.raises(InvalidArgument, match=rf"rows.csv: line {opening + 1} opens a quote"):
        read(tmp_path / "rows.csv", (HEADER + "".join(rows)).encode())


@pytest.mark.parametrize("missing", [",7.5", ",event-3,7.5"])
def test_a_quote_in_a_row_with_too_few_fields_hides_no_other(tmp_path: Path, missing: str) -> None:
    rows = list(ROWS)
    rows[2] = rows[2].replace(missing, "").replace("text", '"text')
    rows[8] = rows[8].replace("\n", '"\n')
    with pytest.raises(InvalidArgument, match=r"line 4 opens a quote, and line 5"):
        read(tmp_path / "rows.csv", (HEADER + "".join(rows)).encode())


def test_a_text_with_line_breaks_and_commas_is_one_field(tmp_path: Path) -> None:
    notes = ["One, two, three,\nfour, five, six,\nseven", "2026-03-01, was, or\n2026-03-02", "\n\n"]
    lines = [f'2026-03-01,event-1,7.5,"{note}"\n' for note in notes]
    found, broken = read(tmp_path / "rows.csv", (HEADER + "".join(lines)).encode())
    assert [row["note"] for row in found] == notes
    assert not broken
    notes = ["2026-03-01: one\nand two", "x\ny"]
    lines = [f'"{note}",2026-03-02,e1\n' for note in notes]
    found, broken = read(tmp_path / "rows.csv", ("note,ts,event_id\n" + "".join(lines)).encode())
    assert ([row["note"] for row in found], broken) == (notes, {})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'1,2,"three" 3,4\n', r"line 2 has text after a closing quote"),
        (
            b'1,2,3,4\n1,2,"3\n4"5,6\n',
            r"line 4 has text after a closing quote",
        ),
        (b"1,2,3,4\n1,2,\0,4\n", r"line 3 has a NUL byte"),
        (b"1,2,3,4\n1,2,\xe9,4\n", r"line 3 is not UTF-8 \(byte 0xe9\); it may be Latin-1"),
        (b"1,2,3,\xe2\x82", r"line 2 is not UTF-8"),
        (b"1,2,3,4\r1,2,\xff,4\r", r"line 3 is not UTF-8"),
    ],
)
def test_damage_is_refused_with_its_line(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(tmp_path / "rows.csv", HEADER.encode() + data)


def test_a_quoted_field_without_an_end_takes_no_more_memory_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RECORD_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(csv_file, name, 1_000)
    monkeypatch.setattr("almanac.user_files._HEAD_BYTES", 1_000)
    endless = b"\n".join([b"words"] * 1_000)
    with pytest.raises(InvalidArgument, match="line 3 opens a quoted field of more than"):
        read(tmp_path / "rows.csv", HEADER.encode() + b'1,2,3,4\n1,2,3,"' + endless + b'"\n')
    with pytest.raises(InvalidArgument, match="line 3 has more than"):
        read(tmp_path / "rows.csv", HEADER.encode() + b"1,2,3,4\n1,2,3," + b"x" * 9_000)


_PIECES = ["abc", "a,", ",", '"', '""', '"a"', '"a\nb"', '"a ""b"""', " ", "\n", "\r\n", "\r", "é"]


@given(
    records=st.lists(st.lists(st.sampled_from(_PIECES), max_size=4).map("".join), max_size=8),
    skip=st.integers(0, 1),
)
@example(records=['a,"b\nc",d', '"e,""f""",', "g,h,i"], skip=1)
def test_plain_records_are_counted_as_by_the_reader(records: list[str], skip: int) -> None:
    data = "\n".join(records).encode()
    counted, start = count_plain_records(data, ",", skip)
    whole, last = RecordReader([data], skip=skip), RecordReader([data[start:]], skip=0)
    if start:
        assert whole.count() == counted + last.count()
        assert (whole.is_open, whole.last_fields) == (last.is_open, last.last_fields)


def test_records_with_quotes_in_fields_are_counted_as_plain() -> None:
    data = b'a,b\r\n1,"x\n""y"""\r\n2,z\r\n3,'
    assert count_plain_records(data, ",", 1) == (2, data.index(b"3,"))
    assert count_plain_records(data.replace(b"2,z", b'2,z"'), ",", 1) == (0, 0)
