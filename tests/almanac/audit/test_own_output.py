"""The output of attach_known and features as rows of an audit; columns that were not judged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import almanac
from almanac.audit.report import Audit
from almanac.audit.user_rows import suggest_fields
from almanac.command_line import main
from almanac.core.errors import InvalidArgument
from almanac.database import Database
from tests.almanac.audit.watched import at, audit_row

ASKED = pd.DataFrame(
    {
        "ts": [at(1), at(2), at(4), at(6), at(6), None],
        "coin": ["bitcoin", "BTC", "bitcoin", "terra", None, "bitcoin"],
        "close": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    }
)
VERDICTS = ["no_event", "clean", "clean", "clean", "no_event", "no_event"]
FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "Polars": pl.from_pandas,
}


def verdicts(audit: Any) -> list[str]:
    return [row["verdict"] for row in audit.verdicts]


@pytest.mark.parametrize(("form", "prefix"), [("pandas", "btc_"), ("Polars", "")])
def test_the_output_of_attach_known_is_clean(db: Database, form: str, prefix: str) -> None:
    audit = db.audit(db.attach_known(FORMS[form](ASKED), horizon="20d", prefix=prefix))
    assert verdicts(audit) == VERDICTS
    assert audit.is_clean
    assert audit.columns["date"] == f"{prefix}next_event_date"
    assert audit.columns["days_until"] == f"{prefix}days_until"
    assert audit.ignored == [
        "close",
        f"{prefix}next_event_age_days",
        f"{prefix}events_ahead",
        f"{prefix}watched",
    ]
    assert "3 used no event; 4 columns were not judged" in repr(audit)
    assert {"no_event", "clean"} == {row["verdict"] for row in audit.summary}


def test_the_rows_of_events_as_of_an_instant_are_clean(db: Database) -> None:
    known = db.events(at(4), status="all").df().assign(decided_at=at(4))
    assert db.audit(known).counts == {"clean": len(known)}
    alone = db.audit(known[["event_id", "date", "decided_at"]])
    estimated = int(known["date_precision"].isin(["quarter"]).sum())
    assert alone.counts == {"unknown_precision": estimated, "clean": len(known) - estimated}


def test_files_of_attached_frames_and_features_are_judged(db: Database, tmp_path: Path) -> None:
    attached = db.attach_known(ASKED, horizon="20d")
    attached.to_csv(tmp_path / "attached.csv")
    assert verdicts(db.audit(tmp_path / "attached.csv")) == VERDICTS
    symbols = {"XBT": "bitcoin", "terra": "terra"}
    features = db.features([at(1), at(5)], "1d", symbols, horizon="20d")
    features.to_parquet(tmp_path / "features.parquet")
    audit = db.audit(tmp_path / "features.parquet")
    assert audit.columns["decided_at"] == "known_at"
    assert verdicts(audit) == ["clean", "no_event", "clean", "clean"]


LATER: list[tuple[dict[str, Any], str]] = [
    ({"next_event_date": at(24)}, "date_not_moved_yet"),
    ({"days_until": 22.0}, "date_not_moved_yet"),
    ({"next_event_known_from": at(3, 6)}, "edited_later"),
    ({"next_event_id": "scored", "next_event_impact": 8.25}, "scored_later"),
    ({"next_event_id": "edited", "next_event_title": "=Coffee"}, "edited_later"),
    ({"next_event_id": "edited", "next_event_categories": "AMA; Meetup"}, "edited_later"),
    ({"next_event_id": "new"}, "not_announced"),
    ({"next_event_id": "linked", "coin": "terra"}, "edited_later"),
]


def test_each_column_of_attach_known_is_judged(db: Database) -> None:
    plain = {"ts": at(2), "coin": "bitcoin", "next_event_id": "moved"}
    names = {name: None for used, _ in LATER for name in used}
    audit = db.audit([{**names, **plain, **used} for used, _ in LATER])
    assert verdicts(audit) == [verdict for _, verdict in LATER]


def test_columns_of_the_caller_do_not_stand_for_those_of_the_package(db: Database) -> None:
    """A frame of prices has a date of its own."""
    row = {"ts": at(2), "date": at(2), "next_event_id": "moved", "next_event_date": at(20, 14)}
    audit = audit_row(db, row)
    assert (verdicts(audit), audit.ignored) == (["clean"], ["date"])


def test_an_id_in_another_form_is_read_or_refused_with_its_type(db: Database) -> None:
    assert audit_row(db, {"event_id": "Moved", "ts": at(2)}).counts == {"clean": 1}
    for number, kind in ((7, "int64"), (7.5, "double")):
        with pytest.raises(InvalidArgument, match=f"holds {kind}, and no event has such an id"):
            audit_row(db, {"event_id": number, "ts": at(2)})


def test_a_row_with_values_and_no_event_is_unreadable(db: Database) -> None:
    row = {"ts": at(2), "next_event_id": None, "next_event_impact": 5.0}
    assert verdicts(audit_row(db, row)) == ["unreadable"]


def test_two_joins_in_one_frame_are_refused_until_one_is_named(db: Database) -> None:
    frame = db.attach_known(ASKED.head(2), prefix="a_")
    frame = db.attach_known(frame, prefix="b_", horizon="20d")
    with pytest.raises(InvalidArgument, match="'a_next_event_id', 'b_next_event_id'"):
        db.audit(frame)
    audit = db.audit(frame, fields={"b_next_event_id": "event_id"})
    assert audit.columns["impact"] == "b_next_event_impact"


def test_lookalikes_of_fields_are_suggested(db: Database) -> None:
    names = ["event_date", "exitDate", "exit", "score", "event_title", "next_event_date", "tags"]
    fields = ["date", "date", "date", "impact", "title", "date", "categories"]
    assert suggest_fields(names) == dict(zip(names, fields, strict=True))
    others = ["price", "close", "open", "volume", "pnl", "side", "qty", "events_ahead", "watched"]
    assert suggest_fields(others) == {}
    audit = audit_row(db, {"event_id": "moved", "ts": at(2), "exit_date": at(24), "price": 1})
    assert audit.suggestions == {"exit_date": "date"}
    assert "2 columns were not judged" in repr(audit)
    assert "exit_date (date?). Name one: --field exit_date=date" in repr(audit)


ROWS = [
    {"event_id": "moved", "ts": at(2), "impact": 5.0},
    {"event_id": "moved", "ts": at(2), "impact": 1.0},
    {"event_id": "found", "ts": at(2), "impact": None},
    {"event_id": "moved", "ts": at(2), "impact": None},
]


@pytest.fixture(scope="module")
def audit(db: Database) -> Audit:
    return db.audit(ROWS)


def test_rows_that_can_t_be_judged_are_limited_by_a_number_or_a_share(audit: Audit) -> None:
    audit.assert_clean()
    audit.assert_clean(max_unjudged=2)
    audit.assert_clean(max_unjudged=0.5)
    for limit in (1, 0, 0.49, 0.0):
        with pytest.raises(almanac.LookAhead, match="2 rows can't be judged; at most"):
            audit.assert_clean(max_unjudged=limit)
    for wrong in (-1, 1.5, True, float("nan")):
        with pytest.raises(InvalidArgument, match="a number of rows"):
            audit.assert_clean(max_unjudged=wrong)


def test_fields_can_be_required(db: Database, audit: Audit) -> None:
    audit.assert_clean(require=["impact", "event_id"])
    with pytest.raises(almanac.LookAhead, match="date was not judged: the table has no column"):
        audit.assert_clean(require=["impact", "date"])
    with pytest.raises(almanac.LookAhead, match="impact was not judged: no row"):
        db.audit(ROWS[2:]).assert_clean(require="impact")
    with pytest.raises(InvalidArgument, match="'when' is not a field"):
        audit.assert_clean(require=["when"])


def test_each_value_that_can_t_be_judged_has_a_reason(audit: Audit) -> None:
    assert audit.counts == {"never_known": 1, "not_watched": 1, "clean": 2}
    reasons = [row["reason"] for row in audit.select_group("unjudged")]
    assert reasons == [
        "this value was known at no time",
        "it was first seen at 2026-03-03T06:00:00Z, when it existed already",
    ]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--strict", "--max-unjudged", "50%", "--require", "impact,event_id"], 0, ""),
        (["--max-unjudged", "1"], 1, "2 rows can't be judged; at most 1 may be"),
        (["--max-unjudged", "few"], 2, "expected a number of rows, such as 10, or a share"),
        (["--require", "impact", "--require", "date"], 1, "date was not judged"),
        (["--require", "when"], 2, "'when' is not a field"),
    ],
    ids=str,
)
def test_the_command_fails_for_too_many_rows_and_for_missing_fields(
    watched_file: Path,
    db: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    file = tmp_path / "rows.csv"
    pd.DataFrame(ROWS).to_csv(file, index=False)
    assert main(["audit", str(file), "--home", str(watched_file), *words]) == code
    assert message in capsys.readouterr().err
