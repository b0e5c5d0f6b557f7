"""zipline: each session has what was known before its cutoff, also of an event that was moved.

The event was announced for 10 June on 20 May, and moved to 24 June on 1 June at 06:00. zipline's
`EventsLoader` shows 10 June until the day has passed, and then as an event that took place
(test_frameworks.py, where zipline is installed).
"""

from datetime import timedelta

import pandas as pd
import pytest

from almanac.adapters.zipline import baselines
from almanac.database import Database
from almanac.errors import InvalidArgument, UnknownName
from tests.almanac.adapters.stories import MOVED, SESSIONS

SID = 7


def changes(column: pd.Series) -> dict[str, str]:
    """Return the sessions at which a date changed, each with its new date."""
    texts = column.dt.strftime("%d %b").fillna("none")
    new = texts[texts != texts.shift()]
    return {day.strftime("%d %b"): text for day, text in new.items()}


def test_a_session_sees_the_date_that_was_known_before_it(moved: Database) -> None:
    found = baselines(moved, SESSIONS, {SID: "bitcoin"}, horizon="60d")
    assert changes(found["next_event_date"][SID]) == {
        "18 May": "none",
        "21 May": "10 Jun",
        "02 Jun": "24 Jun",
        "25 Jun": "none",
    }
    days = found["days_until"][SID]
    assert days[["2026-05-21", "2026-06-01", "2026-06-02", "2026-06-24"]].tolist() == [20, 9, 22, 0]


def test_a_session_knows_what_was_known_until_its_cutoff(moved: Database) -> None:
    day = pd.DatetimeIndex([pd.Timestamp(MOVED.date())])
    before_it, at_it = (
        baselines(moved, day, {SID: "BTC"}, cutoffs=pd.DatetimeIndex([cutoff]), horizon="60d")
        for cutoff in (MOVED - timedelta(microseconds=1), MOVED)
    )
    assert before_it["days_until"][SID].tolist() == [9]
    assert at_it["days_until"][SID].tolist() == [23]


def test_cutoffs_may_be_of_another_zone(moved: Database) -> None:
    cutoffs = (SESSIONS + timedelta(hours=8)).tz_localize("America/New_York")
    found = baselines(moved, SESSIONS, {SID: "BTC"}, cutoffs=cutoffs, horizon="60d")
    assert changes(found["next_event_date"][SID])["01 Jun"] == "24 Jun"


def test_tables_have_sessions_and_sids_in_the_types_of_the_columns(moved: Database) -> None:
    found = baselines(moved, SESSIONS, {SID: "bitcoin", 3: "ETH"})
    assert set(found) == {"days_until", "events_ahead", "impact", "watched", "next_event_date"}
    for name, table in found.items():
        assert table.index.equals(SESSIONS)
        assert list(table.columns) == [SID, 3]
        wanted = "datetime64[ns]" if name == "next_event_date" else "float64"
        assert (table.dtypes == wanted).all()


def test_sessions_need_a_cutoff_each(moved: Database) -> None:
    with pytest.raises(InvalidArgument, match="of the same length"):
        baselines(moved, SESSIONS, {SID: "bitcoin"}, cutoffs=SESSIONS[1:])


def test_an_asset_needs_a_coin_that_is_known(moved: Database) -> None:
    with pytest.raises(UnknownName, match="missing-coin"):
        baselines(moved, SESSIONS, {SID: "missing-coin"})
