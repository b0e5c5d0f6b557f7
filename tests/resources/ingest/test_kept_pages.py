"""Pages that wait in memory for a batch: which of them a batch has completely, which stay."""

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from resources.http.paginator import RawPage
from resources.ingest.paged_pull import PagesInMemory
from tests.resources.fakes import mocked

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
AT = datetime(2026, 3, 1, 6, tzinfo=UTC)


def page_of(*dates: str | None) -> RawPage:
    rows = [{"id": f"{number}", "date": text} for number, text in enumerate(dates)]
    (page,) = mocked(lambda _: httpx.Response(200, json={"data": rows})).events_pages()
    return page


def kept_of(*pages: RawPage) -> PagesInMemory:
    kept = PagesInMemory("events")
    for page in pages:
        kept.keep(page, received_at=AT)
    return kept


def dates_of(kept: PagesInMemory) -> list[list[str | None]]:
    return [[row["date"] for row in json.loads(body)["data"]] for body in kept.bodies()]


ONE, TWO = page_of("2026-03-01", "2026-03-02"), page_of("2026-03-02", "2026-03-03")
UNREAD = page_of("2026-03-01", None)


def test_before_the_first_page_there_is_no_page() -> None:
    kept = PagesInMemory("events")
    assert (kept.first, kept.last, kept.ends_at, kept.fresh) == (None, None, None, 0)


def test_notes_and_bodies_are_in_the_order_of_arrival() -> None:
    kept = kept_of(ONE, TWO)
    assert kept.first is not None
    assert kept.last is not None
    assert (kept.first.number, kept.last.number, kept.fresh) == (1, 2, 2)
    assert kept.ends_at == FIRST + 2 * DAY
    assert list(kept.bodies()) == [ONE.body, TWO.body]


@pytest.mark.parametrize(
    ("to", "stay"),
    [(FIRST + DAY, [ONE, TWO]), (FIRST + 2 * DAY, [TWO]), (FIRST + 3 * DAY, [])],
)
def test_pages_that_may_have_later_rows_stay(to: datetime, stay: list[RawPage]) -> None:
    kept = kept_of(ONE, TWO)
    kept.landed_to(to)
    assert list(kept.bodies()) == [page.body for page in stay]
    assert kept.fresh == 0


def test_a_page_without_dates_stays_with_all_later_pages() -> None:
    kept = kept_of(ONE, UNREAD, TWO)
    assert kept_of(UNREAD).ends_at is None
    kept.landed_to(FIRST + 10 * DAY)
    assert dates_of(kept) == [["2026-03-01", None], ["2026-03-02", "2026-03-03"]]


def test_numbers_continue_after_dropped_pages() -> None:
    kept = kept_of(ONE)
    kept.drop()
    assert list(kept.bodies()) == []
    kept.keep(TWO, received_at=AT)
    assert kept.first is not None
    assert (kept.first.number, kept.fresh) == (2, 1)
