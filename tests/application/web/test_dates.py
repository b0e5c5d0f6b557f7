from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import httpx
import pytest

from almanac.core.errors import AlmanacError
from almanac.database import Database

TEXTS = (
    *("0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0000-01-01"),
    *("10000-01-01", "2026-02-30", "infinity", "0001-01-01T00:00:00 America/New_York"),
    *("2026-03-01T00:00:00+99:99", "1677-09-21", "٢٠٢٦-٠٣-٠١", "\ud800", "a\x00b"),
)
ADDRESSES = {
    "mirror": (
        *("/?as_of=", "/?from=", "/?from=2026-03-01&to=", "/changes?since=", "/changes?until="),
        *("/quality?as_of=", "/calendar?from=", "/calendar.ics?from=", "/calendar.ics?to="),
        *("/v2/events?from=", "/v2/events?to=2026-03-01&from=", "/v2/events/export?to="),
        *("/v2/events/cancellations?since=", "/v2/events?as_of=", "/v2/events/x/history?as_of="),
        "/v2/events/changes?since=",
    ),
    "replay": ("/?as_of=", "/v2/events?as_of=", "/v2/events/changes?since="),
    "sandbox": ("/v2/events?coins=bitcoin&from=", "/v2/events/cancellations?since="),
}


@pytest.mark.parametrize("server", ADDRESSES)
def test_address_with_any_date_is_answered(clients: dict[str, httpx.Client], server: str) -> None:
    for address in ADDRESSES[server]:
        for text in TEXTS:
            answer = clients[server].get(address + quote(text, errors="surrogatepass"))
            assert answer.status_code < 500, (address, text)
            assert "Traceback" not in answer.text


CALLS: tuple[Callable[[Database, str], object], ...] = (
    lambda db, at: db.events(window=(at, None)),
    lambda db, at: db.upcoming(within=at),
    lambda db, at: db.changes(since="2026-03-01", until=at),
    lambda db, at: db.coverage().covers(at),
    lambda db, at: db.replay("2026-02-25", at),
    lambda db, at: db.blackouts(as_of=at),
    lambda db, at: db.sql("FROM upcoming_as_of($ts)", ts=at),
)


def test_function_with_any_date_answers(database: Database) -> None:
    for call in CALLS:
        for text in TEXTS:
            with suppress(AlmanacError):
                call(database, text)
