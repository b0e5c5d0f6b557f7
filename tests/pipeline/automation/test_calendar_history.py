"""A backfill makes no event missing, even if many events share the date at which a month ends."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pipeline.service_session import open_service
from resources.calendar_backfill import Backfill
from tests.pipeline.homes_in_days import settings_of
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.queries import connected

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
TIED = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
SPAN = (date(2026, 10, 1), date(2027, 2, 28))


def test_events_that_end_a_year_together_are_not_missing_after_a_backfill(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with open_service(settings_of(tmp_path, coins=()), now=NOW) as service:
        sandbox = service.sandbox
        assert sandbox is not None
        # Each page has a later instant, as with a running clock.
        service.on_page = lambda feed, rows, total: sandbox.advance(timedelta(seconds=1))
        service.puller().events(*SPAN)
        backfill = Backfill(service, home.state_storage, *SPAN)
        assert len([month for months in backfill.run("list") for month in months]) == 5
    merge(home)
    with connected(home.warehouse) as connection:
        counted = "SELECT count(*), count(missing_since) FROM events WHERE date = $date"
        ((tied, missing),) = connection.execute(counted, {"date": TIED}).fetchall()
        ((missing_in_all,),) = connection.sql("SELECT count(missing_since) FROM events").fetchall()
    assert tied > 250, "more than two pages of them"
    assert (missing, missing_in_all) == (0, 0)
