"""The rows of the caller: frames and files of every kind, and rows that can't be read."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from almanac.core.errors import InvalidArgument
from almanac.database import Database
from tests.almanac.audit.watched import at, open_watched

FRAME = pd.DataFrame(
    {
        "event_id": ["scored", "scored", "moved"],
        "decided_at": [at(2), at(5), at(2)],
        "impact": [8.25, 8.25, 5.0],
        "categories": [["Exchange Listing"]] * 3,
        "price": [1.0, 2.0, 3.0],
    }
)
EXPECTED = ["scored_later", "clean", "clean"]
FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "indexed by instants": lambda frame: frame.set_index("decided_at").rename_axis(None),
    "indexed by category": lambda frame: frame.astype(
        {"event_id": "category", "impact": "float32"}
    ).set_index("event_id"),
    "objects": lambda frame: frame.assign(impact=[8.25, "8.25", "5"]),
    "Polars": pl.from_pandas,
    "Arrow": pa.Table.from_pandas,
    "dicts": lambda frame: frame.to_dict("records"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_of_any_kind_is_judged_alike(db: Database, form: str) -> None:
    audit = db.audit(FORMS[form](FRAME))
    assert [row["verdict"] for row in audit.verdicts] == EXPECTED
    assert audit.ignored == ["price"]


def test_a_row_of_a_file_that_can_t_be_read_is_kept_with_its_number_and_the_reason(
    db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        'event_id,ts,title\nmoved,2026-03-02,"a\nb"\n\nmoved,2026-03-02\nmoved,2026-03-02,title\n'
    )
    audit = db.audit(file)
    assert audit.counts == {"unreadable": 1, "never_known": 1, "clean": 1}
    (found,) = [row for row in audit.rows if row["verdict"] == "unreadable"]
    assert (found["row"], found["reason"]) == (2, "it has 2 fields, and the header 3")


@pytest.mark.parametrize(
    ("column", "twin", "message"),
    [
        ("impact", " Impact", "2 columns for impact: 'impact', ' Impact'. Leave one out"),
        ("decided_at", "decidedAt", "2 columns with the time of the decision: 'decided_at', 'dec"),
        ("event_id", "Event-ID", "2 columns for event_id"),
    ],
)
def test_two_columns_that_are_spelled_alike_are_refused(
    db: Database, column: str, twin: str, message: str
) -> None:
    frame = FRAME.assign(**{twin: FRAME[column]})
    with pytest.raises(InvalidArgument, match=message):
        db.audit(frame)
    if column == "impact":
        audit = db.audit(frame, fields={twin: None})
        assert [row["verdict"] for row in audit.verdicts] == EXPECTED


def test_a_decimal_comma_is_read_in_numbers_and_in_timestamps(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        "event_id;decided_at;impact\n"
        "scored;2026-03-05T06:00:00,000;8,25\n"
        "scored;2026-03-02 09:30:00,123Z;8,25\n"
        "scored;2026-03-02T09:30:00,123456789+01:00;8,250\n"
        "scored;2026-03-02T09:30,5;8,25\n"
    )
    audit = db.audit(file)
    verdicts = [row["verdict"] for row in audit.verdicts]
    assert verdicts == ["clean", "scored_later", "unreadable", "unreadable"]
    assert [row["used"] for row in audit.rows if row["row"] == 3] == ["8,250"]


_PAIRS = ["BTC/USDT", "BTC-USD", "BTCUSDT", "BTC/USDT:USDT", "btc_usdt", " BTC/USDT "]


def test_a_pair_beside_an_event_is_judged_as_its_coin(db: Database) -> None:
    frame = pd.DataFrame({"coin": ["terra", "terra/USDT", *_PAIRS], "event_id": "linked"})
    found = [(row["row"], row["verdict"]) for row in db.audit(frame.assign(ts=at(2))).rows]
    assert found == [(1, "edited_later"), (2, "edited_later")]


def test_white_space_around_an_id_does_not_count(db: Database) -> None:
    frame = FRAME.assign(event_id=["\rscored\t", " scored\r\n", "\xa0moved"])
    assert [row["verdict"] for row in db.audit(frame).verdicts] == EXPECTED


def test_a_decision_that_can_t_be_read_is_told_the_form_that_is_expected(db: Database) -> None:
    (found,) = db.audit(FRAME.iloc[:1].assign(decided_at="20.11.2026 09:00")).rows
    assert found["verdict"] == "unreadable"
    assert found["reason"].startswith("its decision time can't be read; expected ISO 8601")


def test_columns_with_other_names_are_named_and_left_out(db: Database) -> None:
    frame = FRAME.rename(columns={"impact": "score", "decided_at": "when", "price": "status"})
    fields = {"score": "impact", "status": None}
    audit = db.audit(frame, decided_at="when", fields=fields)
    assert [row["verdict"] for row in audit.verdicts] == EXPECTED
    assert audit.columns["impact"] == "score"
    assert audit.ignored == ["status"]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (FRAME.drop(columns="decided_at"), {}, "no column decided_at or ts"),
        (FRAME.drop(columns="event_id"), {}, "no column event_id, and not both coin and date"),
        (FRAME.assign(decided_at=7), {}, "holds int64, and timestamps are expected"),
        (
            FRAME.assign(date=pd.period_range("2026-03-20", periods=len(FRAME))),
            {},
            "Convert periods",
        ),
        (FRAME.assign(event_id=[["moved"]] * len(FRAME)), {}, "expected one event_id a row"),
        (FRAME, {"fields": {"impact": "imapct"}}, "not a field that is judged"),
        (FRAME, {"fields": {"score": "impact"}}, "no column 'score'; it has 'event_id'"),
        (FRAME, {"decided_at": "when"}, "no column 'when'"),
        (FRAME, {"basis": "hoped"}, "expected observed, claimed"),
        (FRAME["impact"], {}, "a Series can't be read as rows"),
        (pl.from_pandas(FRAME).lazy(), {}, "use frame.collect()"),
        ("nothing.csv", {}, "there is no file nothing.csv"),
    ],
    ids=str,
)
def test_rows_that_can_t_be_used_are_an_error_that_says_what_was_expected(
    db: Database, frame: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message.replace("(", r"\(").replace(")", r"\)")):
        db.audit(frame, **options)


def test_rows_without_any_are_no_look_ahead(db: Database) -> None:
    assert db.audit(FRAME.head(0)).counts == {}


@pytest.mark.parametrize(
    "cases",
    [
        # 01:00 in New York is 06:00 UTC, when the date moved.
        {"2026-03-03 01:00": "clean", "2026-03-03 00:59": "date_not_moved_yet"},
        {date(2026, 3, 3): "date_not_moved_yet", date(2026, 3, 4): "clean"},
        {pd.Timestamp("2026-03-03 01:00"): "clean"},
        {
            "2026-03-03 01:00+00": "date_not_moved_yet",
            "2026-03-03T06:00:00.000000Z": "clean",
            "2026-03-03 11:30:00+05:30": "clean",
            "2026-03-03T11:29+05:30": "date_not_moved_yet",
        },
        {pd.Timestamp("2026-03-03 06:00", tz="UTC"): "clean"},
    ],
    ids=["texts", "dates", "stamps", "texts with a zone", "stamps with a zone"],
)
def test_an_instant_without_a_zone_is_of_the_zone_of_the_database(
    watched_file: Path, db: Database, cases: dict[Any, str], request: pytest.FixtureRequest
) -> None:
    rows = [{"event_id": "moved", "ts": ts, "date": "2026-03-22T14:00Z"} for ts in cases]
    with open_watched(watched_file, "America/New_York") as local:
        audit = local.audit(rows)
    assert [row["verdict"] for row in audit.verdicts] == [*cases.values()]
    is_zoned = "zone" in request.node.callspec.id
    assert audit.naive.get("ts", 0) == (0 if is_zoned else len(rows))


def test_a_time_of_day_that_clocks_skip_is_the_earlier_instant_which_knows_less(
    watched_file: Path, db: Database
) -> None:
    """Clocks in New York went from 02:00 to 03:00 at 07:00 UTC, when the score was given."""
    times = ["2026-03-08 01:59", "2026-03-08 02:30", "2026-03-08 03:00"]
    rows = [{"event_id": "clocks", "ts": time, "impact": 6.0} for time in times]
    with open_watched(watched_file, "America/New_York") as local:
        found = [row["verdict"] for row in local.audit(rows).verdicts]
    assert found == ["scored_later", "scored_later", "clean"]
