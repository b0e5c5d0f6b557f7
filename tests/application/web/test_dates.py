"""Dates at the ends of the calendar, and texts that are no dates, at every address, function and
command: each is answered, or refused in plain words. None is a status of 500 or a traceback."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import almanac
from almanac.command_line import app
from almanac.database import Database
from almanac.errors import AlmanacError
from almanac.mcp.toolbox import Toolbox
from tests.application.mirror.filled_home import NOW
from tests.in_process import own_process
from tests.pipeline.conftest import Almanac
from tests.pipeline.conftest import almanac as command_line
from warehouse.home import Home

__all__ = ["command_line"]

TEXTS = (
    *("0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31", "9999-12-31T23:59:59.999999Z"),
    *("9999-12-31T23:59:59-14:00", "0000-01-01", "10000-01-01", "2026-02-30", "infinity"),
    *("0001-01-01T00:00:00 America/New_York", "9999-12-31T23:59:59 Pacific/Apia", "-infinity"),
    *("9999-12-31T24:00:00Z", "2026-03-01T00:00:00+99:99", "1677-09-21", "NaT", "1e9"),
    *("٢٠٢٦-٠٣-٠١", "\ud800", "a\x00b"),
)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
VALUES: tuple[Any, ...] = (
    *(FIRST, LAST, FIRST.replace(tzinfo=None), LAST.replace(tzinfo=None), date.min, date.max),
    *(FIRST.replace(tzinfo=EAST), LAST.replace(tzinfo=WEST), float("nan"), 10**30),
    *(np.datetime64("NaT"), np.datetime64("-200000-01-01"), np.datetime64("9999-12-31")),
)
PAGES = (
    *("/?as_of=", "/?from=", "/?to=", "/?from=2026-03-01&to=", "/?when=", "/coins?as_of="),
    *("/coin/bitcoin?as_of=", "/event/x?as_of=", "/changes?since=", "/changes?until="),
    *("/changes?as_of=", "/quality?as_of=", "/calendar?from=", "/calendar?to=", "/calendar?as_of="),
    *("/calendar.ics?from=", "/calendar.ics?to=", "/calendar.ics?as_of="),
)
INTERFACE = (
    *("/v2/events?from=", "/v2/events?to=", "/v2/events?to=2026-03-01&from="),
    *("/v2/events/export?from=", "/v2/events/export?to=", "/v2/events/cancellations?since="),
)
EXTENSIONS = (
    *("/v2/events?as_of=", "/v2/events/export?as_of=", "/v2/coins?as_of=", "/v2/events/x?as_of="),
    *("/v2/events/x/history?as_of=", "/v2/events/changes?since=", "/v2/events/changes?until="),
    *("/v2/events/cancellations?as_of=", "/v2/categories?as_of="),
)
ADDRESSES = [
    *(("mirror", address) for address in (*PAGES, *INTERFACE, *EXTENSIONS)),
    *(("replay", address) for address in (*PAGES[:2], *EXTENSIONS)),
    *(("sandbox", address.replace("?", "?coins=bitcoin&")) for address in INTERFACE[:-1]),
    ("sandbox", INTERFACE[-1]),
]


@pytest.mark.parametrize(("server", "address"), ADDRESSES)
def test_address_with_any_date_is_answered_or_refused(
    clients: dict[str, httpx.Client], server: str, address: str
) -> None:
    found = {}
    for text in TEXTS:
        answer = clients[server].get(address + quote(text, errors="surrogatepass"))
        found[text] = answer.status_code
        assert "Traceback" not in answer.text
    assert {text: status for text, status in found.items() if status >= 500} == {}


@pytest.mark.parametrize(
    ("server", "method", "path", "header", "field"),
    [
        ("mirror", "GET", "/v2/events", "x-as-of", None),
        ("sandbox", "GET", "/v2/events", "sandbox-now", None),
        ("sandbox", "PUT", "/sandbox/clock", None, "now"),
        ("replay", "PUT", "/replay/clock", None, "now"),
    ],
)
def test_header_or_order_with_any_date_is_answered_or_refused(
    clients: dict[str, httpx.Client],
    server: str,
    method: str,
    path: str,
    header: str | None,
    field: str | None,
) -> None:
    client, found = clients[server], {}
    before = client.get(path).json() if field else {}
    for text in TEXTS:
        if not text.isascii() or not text.strip() or "\x00" in text:
            continue  # httpx sends no such header.
        answer = client.request(
            method,
            path,
            headers={header: text} if header else {},
            json={field: text} if field else None,
        )
        found[text] = answer.status_code
    if field:
        client.put(path, json={"now": before["now"]})
    assert {text: status for text, status in found.items() if status >= 500} == {}


NUMBERS = ("1e300", "-1e300", "1e19", "-1e19", "0", "1e-300", "1e999", "NaN", "true", '"1"', "[]")


@pytest.mark.parametrize(
    ("server", "fields"),
    [("sandbox", ("advance_s",)), ("replay", ("advance_s", "step", "speed"))],
)
def test_clock_refuses_numbers_out_of_range(
    clients: dict[str, httpx.Client], server: str, fields: tuple[str, ...]
) -> None:
    client, path = clients[server], f"/{server}/clock"
    before = client.get(path).json()
    for field in fields:
        for number in NUMBERS:
            answer = client.put(path, content=f'{{"{field}": {number}}}')
            assert answer.status_code in (200, 400, 422), (field, number, answer.text)
            if answer.status_code == 200:
                continue
            for words in ("OverflowError", "convert", "date value out of range", "isoformat"):
                assert words not in answer.text, answer.text
    client.put(path, json={"now": before["now"]})


CALLS: dict[str, Callable[[Database, Any], object]] = {
    "events(as_of)": lambda db, at: db.events(as_of=at),
    "events(from)": lambda db, at: db.events(window=(at, None)),
    "events(to)": lambda db, at: db.events(window=(None, at)),
    "upcoming": lambda db, at: db.upcoming(as_of=at),
    "upcoming(within)": lambda db, at: db.upcoming(within=at),
    "changes(since)": lambda db, at: db.changes(since=at),
    "changes(until)": lambda db, at: db.changes(since="2026-03-01", until=at),
    "coverage": lambda db, at: db.coverage(at),
    "covers": lambda db, at: db.coverage().covers(at),
    "known_before": lambda db, at: db.known_before(at),
    "replay(start)": lambda db, at: list(db.replay(at)),
    "replay(until)": lambda db, at: list(db.replay("2026-02-25", at)),
    "features": lambda db, at: db.features([at], "1h", ["bitcoin"]),
    "blackouts": lambda db, at: db.blackouts(as_of=at),
    **{
        f"sql {macro}": lambda db, at, macro=macro: db.sql(f"FROM {macro}", ts=at)  # type: ignore[misc]
        for macro in (
            *("events_as_of($ts)", "upcoming_as_of($ts)", "coins_as_of($ts)", "coverage_at($ts)"),
            *("event_coins_as_of($ts)", "known_before($ts)", "changes_since($ts)"),
            *("slip_rates($ts, '3d')",),
        )
    },
}


@pytest.fixture(scope="module")
def database(filled_home: Home) -> Iterator[Database]:
    with almanac.open(filled_home.root, clock=lambda: NOW) as database:
        yield database


@pytest.mark.parametrize("call", CALLS)
def test_function_with_any_date_answers_or_refuses(database: Database, call: str) -> None:
    for value in (*TEXTS, *VALUES):
        if call == "features" and value == "\ud800":
            continue  # pandas makes no index of it.
        try:
            CALLS[call](database, value)
        except (AlmanacError, TypeError) as error:
            assert not isinstance(error, TypeError) or "argument" in str(error), value


@pytest.mark.parametrize(
    ("tool", "argument"),
    [
        *(("upcoming", "as_of"), ("upcoming", "within"), ("events_as_of", "as_of")),
        *(("events_as_of", "from"), ("events_as_of", "to"), ("history_of", "as_of")),
        *(("what_changed", "since"), ("what_changed", "until"), ("coverage", "as_of")),
    ],
)
def test_tool_with_any_date_answers_or_refuses(filled_home: Home, tool: str, argument: str) -> None:
    toolbox = Toolbox(filled_home.warehouse, clock=lambda: NOW)
    least: dict[str, Any] = {
        "what_changed": {"since": "2026-03-01"},
        "history_of": {"event_id": "x"},
    }
    try:
        for text in TEXTS:
            try:
                toolbox.call(tool, {**least.get(tool, {}), argument: text})
            except AlmanacError as error:
                assert str(error)
    finally:
        toolbox.close()


COMMANDS = (
    *(("changes", "--since"), ("changes", "--until"), ("export", "-o", "x.ics", "--from")),
    *(("export", "-o", "x.ics", "--to"), ("export", "-o", "x.ics", "--as-of")),
    *(("report", "--since"), ("report", "--as-of"), ("watch", "--once", "--since")),
    *(("backfill", "--max-requests", "1", "--from"), ("serve", "--replay")),
    *(("serve", "--replay", "2026-03-01", "--until"), ("sandbox", "--now")),
    *(("import", "none.csv", "--content-at"), ("sql", "FROM events_as_of($ts)", "--param")),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_with_any_date_answers_or_ends_with_one_message(
    command_line: Almanac,
    filled_home: Home,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv("ALMANAC_HOME", str(filled_home.root))
    for text in TEXTS[:9]:
        value = f"ts={text}" if command[-1] == "--param" else text
        with own_process():
            done = CliRunner().invoke(app, [*command, value])
        assert isinstance(done.exception, SystemExit | None), (text, done.exception)
        assert done.exit_code in (0, 1, 2), (text, done.output)
        assert "Traceback" not in done.output
