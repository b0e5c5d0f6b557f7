"""A result in the forms of other libraries, in a file, on a terminal and in a notebook."""

import pickle
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import almanac
from almanac.results import Result

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MANY = 20_000


def numbers(count: int) -> Result:
    return Result(pa.table({"n": range(count), "square": [n * n for n in range(count)]}))


def wide(count: int = MANY) -> Result:
    """Return rows like those of `events`, each with long texts."""
    texts = {
        f"text_{place}": [f"{n} of {place}: " + "x" * 300 for n in range(20)] for place in range(26)
    }
    table = pa.table({"id": [f"{n:024x}" for n in range(20)], **texts, "at": [NOON] * 20})
    return Result(pa.concat_tables([table] * (count // 20)))


class TestNotebook:
    def test_thousands_of_rows_are_a_small_page(self) -> None:
        html = wide()._repr_html_()
        assert len(html.encode()) < 60_000
        assert "20,000 rows × 28 columns" in html
        assert "mathjax_ignore" in html, "a text between dollars is no formula"

    def test_the_first_ten_and_last_five_rows_are_shown(self) -> None:
        found = ElementTree.fromstring(numbers(1_000)._repr_html_())
        cells = [text for text in found.itertext() if text.strip()]
        firsts = [str(n) for row in range(10) for n in (row, row * row)]
        lasts = [str(n) for row in range(995, 1_000) for n in (row, row * row)]
        assert cells == ["n", "square", *firsts, "…", *lasts, "1,000 rows × 2 columns"]

    @pytest.mark.parametrize("count", [0, 1, 15])
    def test_a_few_rows_are_all_shown(self, count: int) -> None:
        html = numbers(count)._repr_html_()
        assert html.count("<tr") == count + 1 and "…" not in html
        assert f"{count} row{'' if count == 1 else 's'} × 2 columns" in html

    @given(st.text(st.characters(codec="utf-8"), max_size=60))
    def test_every_text_is_escaped(self, text: str) -> None:
        nasty = "<script>alert(1)</script><b onload='x'>&\"" + text
        html = Result(pa.table({nasty: [nasty], "b": [nasty]}))._repr_html_()
        found = [*ElementTree.fromstring(html).iter()]
        tags = {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
        assert {element.tag for element in found} == tags
        assert {name for element in found for name in element.attrib} <= {
            *("class", "style", "colspan")
        }
        assert re.search("[\x00-\x08\x0b-\x1f\u202e]", html) is None

    def test_numbers_are_on_the_right_and_texts_on_the_left(self) -> None:
        mixed = Result(pa.table({"title": ["a", None], "n": [1, None]}))
        assert mixed._repr_html_().count("text-align:right") == 3
        assert "text-align:right" not in mixed.head(0)._repr_html_()


class TestTerminal:
    @pytest.mark.parametrize("columns", [20, 80, 200])
    def test_what_is_printed_fits_the_terminal(
        self, columns: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        japanese = Result(pa.table({"title": ["日本語の題" * 30] * 30, "n": range(30)}))
        for result in (wide(40), numbers(1_000), numbers(0), japanese):
            assert max(map(cell_len, repr(result).splitlines())) <= columns

    def test_columns_that_do_not_fit_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        words = " ".join(repr(wide(40)).split())
        assert words.endswith("40 rows × 28 columns; not shown: text_2, text_3, text_4 and 22 more")

    def test_the_first_ten_and_last_five_rows_are_printed(self) -> None:
        lines = repr(numbers(1_000)).splitlines()
        assert [line.split()[0] for line in lines[2:]] == [
            *map(str, range(10)), "…", *map(str, range(995, 1_000)), "1,000",
        ]  # fmt: skip

    def test_a_time_outside_of_the_years_of_python_is_shown(self) -> None:
        far = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
        assert "1 row × 1 column" in repr(Result(pa.table({"at": far})))
        assert "<td" in Result(pa.table({"at": far}))._repr_html_()


class TestForms:
    def test_a_time_outside_of_python_s_years_is_refused_as_a_python_value(self) -> None:
        far = Result(pa.table({"day": pa.array([20_514_500], pa.date32())}))
        assert "1 row" in repr(far)
        for read in (far.rows, far.df, lambda: list(far)):
            with pytest.raises(almanac.InvalidArgument, match=r"years 1 to 9999.*use arrow"):
                read()

    @pytest.mark.parametrize("n", [0, 1, 3, 5, 9, -1, -2, -9])
    def test_head_and_tail_are_those_of_pandas(self, n: int) -> None:
        result, frame = numbers(5), numbers(5).df()
        for found, expected in ((result.head(n), frame.head(n)), (result.tail(n), frame.tail(n))):
            pd.testing.assert_frame_equal(found.df(), expected.reset_index(drop=True))

    def test_columns_are_chosen_as_in_pandas(self) -> None:
        column = numbers(3)["square"]
        assert isinstance(column, pd.Series) and column.name == "square"
        assert column.tolist() == [0, 1, 4]
        chosen = numbers(3)[["square", "n"]]
        assert isinstance(chosen, Result) and chosen.columns == ["square", "n"]

    def test_a_column_that_is_not_there_is_an_error_that_lists_all(self) -> None:
        result = numbers(3)
        assert "square" in result and "cube" not in result
        with pytest.raises(almanac.UnknownName, match="'cube'; the result has n, square"):
            result["cube"]
        for wrong in (0, result["n"] > 1, None):
            with pytest.raises(almanac.InvalidArgument, match=r"not a column name.*df\(\)"):
                result[wrong]  # type: ignore[call-overload]

    def test_rows_are_sliced_as_in_a_list(self, tmp_path: Path) -> None:
        result, expected = numbers(7), [*range(7)]
        for rows in (slice(2), slice(2, 5), slice(-3, None), slice(None, None, -2), slice(5, 2)):
            assert [row["n"] for row in result[rows]] == expected[rows]
        assert result.shape == (7, 2) and result.to_pandas().equals(result.df())
        result[:2].to_csv(tmp_path / "rows.csv")
        assert (tmp_path / "rows.csv").read_text() == "n,square\n0,0\n1,1\n"
        for write in (result.to_csv, result.to_parquet):
            with pytest.raises(almanac.InvalidArgument, match=r"the folder .* does not exist"):
                write(tmp_path / "no" / "rows")

    def test_other_libraries_take_a_result_as_it_is(self) -> None:
        result = Result(
            pa.table({"n": [1, None], "at": pa.array([NOON, None], pa.timestamp("us", "UTC"))})
        )
        expected = result.arrow()
        assert pl.DataFrame(result).equals(result.pl())
        assert pa.table(result).equals(expected)
        assert pa.RecordBatchReader.from_stream(result).read_all().equals(expected)
        assert duckdb.connect().sql("SELECT count(*), sum(n) FROM result").fetchall() == [(2, 1)]
        if hasattr(pd.DataFrame, "from_arrow"):  # pandas 3
            assert len(pd.DataFrame.from_arrow(result)) == 2

    def test_the_types_of_columns_stay_in_pandas(self) -> None:
        sql = """
            SELECT unnest([1, NULL])::{} AS whole, unnest([TRUE, NULL]) AS flag, 7::{} AS full,
                '2026-03-02 12:00+00'::TIMESTAMPTZ AS at, 1.25 AS decimal, 7::HUGEINT AS huge
        """
        for kind in ("TINYINT", "INTEGER", "BIGINT", "UINTEGER", "UBIGINT"):
            query = duckdb.connect().sql(sql.format(kind, kind))
            result = Result(query.to_arrow_table())
            frame = result.df()
            assert pd.api.types.is_integer_dtype(frame["whole"].dtype)
            assert frame["whole"].isna().tolist() == [False, True]
            assert str(frame["flag"].dtype) == "boolean"
            assert str(frame["full"].dtype) == str(result.arrow().schema.field("full").type)
            assert str(frame["at"].dtype).startswith("datetime64[us, ")
            assert (frame["decimal"].dtype, frame["huge"].dtype) == ("float64", "int64")
        too_large = Result(pa.table({"n": pa.array([10**30], pa.decimal128(38, 0))}))
        assert too_large.df()["n"].tolist() == [1e30]

    def test_it_is_written_to_parquet_or_the_file_stays(self, tmp_path: Path) -> None:
        numbers(2).to_parquet(tmp_path / "rows.parquet")
        interval = duckdb.connect().sql("SELECT INTERVAL 1 MONTH AS length").to_arrow_table()
        with pytest.raises(almanac.InvalidArgument, match="was not written"):
            Result(interval).to_parquet(str(tmp_path / "rows.parquet"))
        assert parquet.read_table(tmp_path / "rows.parquet").equals(numbers(2).arrow())
        assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]

    def test_it_can_be_pickled(self) -> None:
        assert pickle.loads(pickle.dumps(numbers(3))).rows() == numbers(3).rows()


@pytest.mark.parametrize(
    "address",
    [
        *("https://user:secret@host/warehouse.duckdb", "S3://bucket/secret", "gs://b/secret"),
        *(Path("https://host/secret"), "abfss://secret@host/x"),
    ],
    ids=str,
)
def test_an_address_is_refused_wherever_a_path_is_expected(address: Any) -> None:
    message = r"is an address \(\w+://…\); expected a path"
    for use in (almanac.open, numbers(1).to_parquet):
        with pytest.raises(almanac.InvalidArgument, match=message) as refused:
            use(address)
        assert "secret" not in str(refused.value)


def test_a_file_address_is_answered_with_its_path() -> None:
    with pytest.raises(almanac.InvalidArgument, match="the path alone: /tmp/a b/home"):
        almanac.open("file:///tmp/a%20b/home")


def test_what_is_no_path_is_refused() -> None:
    for wrong in (5, ["data"], b"data\0", "da\0ta"):
        with pytest.raises(almanac.InvalidArgument, match="is not a path"):
            almanac.open(wrong)  # type: ignore[arg-type]
