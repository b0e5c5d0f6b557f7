"""Price files as people have them: read in full, or refused with the name of the file."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from almanac.errors import InvalidArgument
from almanac.study.prices import read_prices

DAYS = pd.date_range("2026-03-01", periods=5)
CLOSE = pd.DataFrame({"BTC": [1.5, 2.5, 3.5, 4.5, 5.5], "ETH": [1.25, 2, 3, 4, 5]}, DAYS)
WIDE = CLOSE.to_csv(index_label="ts")


def read(path: Path, data: bytes | str) -> pd.DataFrame:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    found = read_prices(str(path))
    return pd.DataFrame(found.close, pd.to_datetime(found.starts, unit="us"), list(found.coins))


@pytest.mark.parametrize(
    "text",
    [
        CLOSE.to_csv(),
        CLOSE.reset_index(names="ts").to_csv(),
        "# from an exchange\n" + CLOSE.to_csv(),
        "https://www.example.org\n" + WIDE,
        "\ufeff" + WIDE,
        WIDE.replace(",", ";"),
        WIDE.replace(",", "\t"),
        WIDE.replace("\n", "\r\n"),
        WIDE.replace("\n", "\r"),
        WIDE.replace("\n", ",\n"),
        WIDE.replace("\n", "\n\n"),
        WIDE.replace("-01,", "-01 00:00:00.000,").replace("-02,", "-02T00:00:00Z,"),
        WIDE.replace(",", ";").replace("-01;", "-01T00:00:00,000;"),
        WIDE.replace(",", '","').replace("\n", '"\n"').join(['"', ""])[:-1],
    ],
)
def test_a_csv_file_of_any_form_has_the_same_prices(tmp_path: Path, text: str) -> None:
    found = read(tmp_path / "prices.csv", text)
    pd.testing.assert_frame_equal(found, CLOSE, check_freq=False, check_index_type=False)


def test_missing_prices_are_counted_and_coins_called_NA_are_coins(tmp_path: Path) -> None:
    found = read(tmp_path / "prices.csv", "ts,coin,close\n2026-03-01,NA,1\n2026-03-02,NA,NA\n")
    assert list(found.columns) == ["NA"]
    assert found["NA"].isna().tolist() == [False, True]
    found = read(tmp_path / "prices.csv", WIDE.replace("2.5,", ",").replace(",3.0", ",null"))
    assert np.isnan(found.to_numpy()).sum() == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; expected a header and rows"),
        (WIDE.replace("BTC", "é").encode("latin-1"), "line 1 is not UTF-8 .* Latin-1"),
        (WIDE.encode("utf-16"), "is UTF-16 text"),
        (b"PK\3\4" + bytes(99), "is an Excel workbook"),
        (WIDE.replace("3.5", "\0"), "line 4 has a NUL byte"),
        (WIDE.replace("2026-03-03", '"2026-03-03'), "line 4 opens a quote"),
        (WIDE.replace("2026-03-05", '"2026-03-05'), "line 6 opens a quote that is never closed"),
        (WIDE.replace("2.5,2.0", "2.5"), "record 2 can't be read: it has 2 fields, .* header 3"),
        (
            WIDE.replace(",", ";").replace(".", ","),
            "column 'BTC' has numbers with a comma, as '1,5'",
        ),
        (WIDE.replace("2.5", '"1,002"'), "column 'BTC' has numbers with a comma, as '1,002'"),
    ],
)
def test_a_file_that_can_t_be_read_in_full_is_refused_with_its_name(
    tmp_path: Path, data: bytes | str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"prices.csv:? {message}"):
        read(tmp_path / "prices.csv", data)


def test_a_cut_parquet_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "prices.parquet"
    CLOSE.to_parquet(path)
    for data in (path.read_bytes()[:-100], b"", b"PK\3\4" + bytes(99)):
        with pytest.raises(InvalidArgument, match=r"prices.parquet is .*; expected a Parquet file"):
            read(path, data)
