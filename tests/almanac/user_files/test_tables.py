"""Files of the user: what is no CSV or Parquet is refused by name, the rest is read in full."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from almanac.core.errors import InvalidArgument
from almanac.database import open_database
from almanac.user_files import CsvFile, find_column, open_parquet, plain_name
from tests.almanac.publications import publish_two_events

TEXT = "ts,coin,close\n2026-03-01,BTC,1.5\n2026-03-02,NA,2.5\n"
ROWS = [("2026-03-01", "BTC", "1.5"), ("2026-03-02", "NA", "2.5")]


def rows_of(path: Path) -> list[tuple[str, ...]]:
    file = CsvFile(path)
    table = file.table(file.names)
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        TEXT.replace("\n", "\r\n", 1).encode(),
        TEXT.replace("\n", "\n\n").encode(),
        b"\n\r\n" + TEXT.encode(),
        TEXT.rstrip().encode(),
        TEXT.replace(",", ";").encode(),
        TEXT.replace(",", "\t").encode(),
        TEXT.replace(",", "|").encode(),
        b"sep=;\r\n" + TEXT.replace(",", ";").encode(),
        b"# from an exchange, at noon, in 2026, as is\n" + TEXT.encode(),
        b"https://www.example.org/prices\n" + TEXT.encode(),
        b"# one\n# two\n\n" + TEXT.encode(),
        gzip.compress(TEXT.encode(), mtime=0),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_a_csv_file_of_any_form_has_the_same_rows(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(data)
    assert rows_of(path) == ROWS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; expected a header and rows"),
        (b"\n\n", "is empty; expected a header and rows"),
        (TEXT.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        (TEXT.encode("utf-16-le"), "line 1 has a NUL byte, as UTF-16"),
        (TEXT.replace("BTC", "é").encode("latin-1"), "line 2 is not UTF-8 .* may be Latin-1"),
        (TEXT.replace("coin", "é").encode("latin-1"), "line 1 is not UTF-8 .* may be Latin-1"),
        (b"PK\3\4" + bytes(99), "is an Excel workbook or another zip archive; expected CSV"),
        (b"PAR1" + bytes(99), "is Parquet; its name has to end in .parquet"),
        (gzip.compress(TEXT.encode() * 99, mtime=0)[:-20], "can't be read: Compressed file ended"),
        (b"<!DOCTYPE html>\n<html>", "is HTML; expected CSV"),
        (b'{"rows": []}', "is JSON; expected CSV"),
        (b"a,b,a\n1,2,3\n", "has two columns 'a'"),
        (b'ts,"coin\n1,2\n', "line 1 has a quote that is not closed. A header has one line"),
        (b'ts,"co\nin"\n1,2\n', "line 1 has a quote that is not closed. A header has one line"),
        (TEXT.encode() + b"2026-03-03,ETH\n", "record 3 can't be read: it has 2 fields"),
        (TEXT.encode() + b"2026-03-03,ETH,1,2\n", "record 3 can't be read: it has 4 fields"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_its_name(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(data)
    with pytest.raises(InvalidArgument, match=f"prices.csv:? {message}"):
        rows_of(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "is empty; expected a Parquet file"),
        (lambda data: data[: len(data) // 2], "is cut or damaged: the end .* is missing"),
        (lambda data: b"PK\3\4" + bytes(99), "is an Excel workbook or another zip archive"),
        (lambda data: TEXT.encode(), "is not a Parquet file; expected a Parquet file"),
    ],
)
def test_a_parquet_file_that_is_none_is_refused_with_its_name(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "prices.parquet"
    pd.DataFrame({"ts": range(999)}).to_parquet(path)
    assert open_parquet(path).metadata.num_rows == 999
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InvalidArgument, match=f"prices.parquet {message}"):
        open_parquet(path)


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("ts,coin,\n\n")
    file = CsvFile(path)
    assert file.table().column_names == ["ts", "coin", "column 3"]
    assert sum(batch.num_rows for batch in file.batches(["ts"], lambda number, why: None)) == 0


@pytest.mark.parametrize(
    "name",
    ["decidedAt", " decided_at", "Decided At", "DECIDED-AT", "decided\u00a0at", "ｄecided_at"],
)
def test_a_column_is_found_however_its_name_is_spelled(name: str) -> None:
    assert plain_name(name) == "decidedat"
    assert find_column(["date", name], "decided_at", "the file") == name
    with pytest.raises(InvalidArgument, match="the file has 2 columns for decided_at"):
        find_column([name, "decided.at"], "decided_at", "the file")
    assert find_column([name, "decided_at"], "decided_at", "the file") == "decided_at"
    assert find_column([name], "date", "the file") is None


def test_a_registered_file_is_a_table_or_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    with open_database(publish_two_events(tmp_path)) as db:
        file.write_text(TEXT)
        db.register("prices", file)
        query = "SELECT coin, close FROM prices ORDER BY ts"
        assert db.sql(query).rows() == [{"coin": "BTC", "close": 1.5}, {"coin": "NA", "close": 2.5}]
        db.sql(query).df().to_parquet(tmp_path / "prices.parquet")
        db.register("again", str(tmp_path / "prices.parquet"))
        assert db.sql("SELECT count(*) AS n FROM again").rows() == [{"n": 2}]
        file.write_text(TEXT.replace("BTC", '"BTC'))
        with pytest.raises(InvalidArgument, match=r"prices.csv: line 2 opens a quote"):
            db.register("prices", file)
        with pytest.raises(InvalidArgument, match="there is no file"):
            db.register("prices", tmp_path / "none.parquet")
