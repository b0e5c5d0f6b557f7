"""Arguments as assistants write them: each call is answered, or refused with what was expected."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import almanac
from almanac.core.errors import AlmanacError
from almanac.core.timestamps import read_timestamp
from almanac.events import KINDS, STATUSES
from almanac.mcp.toolbox import Toolbox
from almanac.mcp.tools import TOOLS
from tests.almanac.mcp.conftest import NOW

ALL: dict[str, Any] = {"within": "30d", "limit": 1_000}
SINCE = "2026-03-01T12:00:00Z"
READ: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("upcoming", {"limit": "10.0", "offset": "3"}, {"limit": 10, "offset": 3}),
    ("upcoming", {"coins": None, "categories": [], "min_impact": "", "as_of": None}, {}),
    ("upcoming", {"within": "", "estimated": None, "as_of": {}}, {}),
    ("upcoming", {"coins": "null", "as_of": " "}, {}),
    ("upcoming", {**ALL, "min_impact": "7.5"}, {**ALL, "min_impact": 7.5}),
    ("upcoming", {**ALL, "min_impact": "High"}, {**ALL, "min_impact": 5}),
    ("upcoming", {**ALL, "coins": "BTC"}, {**ALL, "coins": ["slug:bitcoin"]}),
    ("upcoming", {**ALL, "coins": "$BTC"}, {**ALL, "coins": ["slug:bitcoin"]}),
    ("upcoming", {**ALL, "coins": ["BTCUSDT"]}, {**ALL, "coins": ["slug:bitcoin"]}),
    (
        "upcoming",
        {**ALL, "coins": '["BTC", "First Sun"]'},
        {**ALL, "coins": ["slug:bitcoin", "slug:first-sun"]},
    ),
    ("upcoming", {**ALL, "coins": "['BTC']"}, {**ALL, "coins": ["slug:bitcoin"]}),
    ("upcoming", {**ALL, "coins": ["BTC", None, ""]}, {**ALL, "coins": ["slug:bitcoin"]}),
    ("upcoming", {**ALL, "categories": "token unlock"}, {**ALL, "categories": ["Token Unlock"]}),
    ("upcoming", {"within": "24h"}, {"within": "1d"}),
    ("upcoming", {"within": "2 weeks"}, {}),
    ("upcoming", {"as_of": "24h"}, {"as_of": "2026-03-07T12:00:00Z"}),
    ("upcoming", {"as_of": "yesterday"}, {"as_of": "2026-03-07"}),
    ("events_as_of", {"status": "Scheduled, Cancelled"}, {"status": ["scheduled", "cancelled"]}),
    ("history_of", {"event_id": "MOVED"}, {"event_id": "moved"}),
    ("events_as_of", {"status": "ALL"}, {"status": list(STATUSES)}),
    ("events_as_of", {"from": None, "to": None}, {}),
    (
        "events_as_of",
        {"from": "2026-03-12", "to": "2026-03-12"},
        {"from": "2026-03-12T00:00:00", "to": "2026-03-13T00:00:00"},
    ),
    ("events_as_of", {"to": 20260312}, {"to": "2026-03-12"}),
    ("what_changed", {"since": "168h", "until": None}, {"since": SINCE}),
    ("what_changed", {"since": "-7D", "until": "now"}, {"since": SINCE}),
    ("what_changed", {"since": "7 days ago"}, {"since": SINCE}),
    (
        "what_changed",
        {"since": "7d", "kinds": ["RESCHEDULED", "made exact"]},
        {"since": SINCE, "kinds": ["rescheduled", "made_exact"]},
    ),
    ("what_changed", {"since": "7d", "kinds": "all"}, {"since": SINCE}),
    (
        "what_changed",
        {"since": "7d", "categories": "token unlock", "coins": "btc"},
        {"since": SINCE, "categories": ["Token Unlock"], "coins": ["slug:bitcoin"]},
    ),
    ("coverage", {"as_of": None, "limit": "5"}, {"limit": 5}),
    ("query", {"sql": None, "table": "EVENTS"}, {"table": "events"}),
    ("query", {"sql": " FROM range(3) ", "limit": 2.0}, {"sql": "FROM range(3)", "limit": 2}),
)
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("upcoming", {"coins": ["SUN"]}, "slug:first-sun (First Sun, rank 40)"),
    ("upcoming", {"coins": "$SUN"}, "'$SUN' stands for 2 coins"),
    ("upcoming", {"coins": ["bitcoinn"]}, "Similar: bitcoin (Bitcoin)"),
    ("upcoming", {"coins": "FOO/USDT"}, "no coin has the ticker 'FOO' of 'FOO/USDT'"),
    ("upcoming", {"coins": [{"slug": "bitcoin"}]}, "coins: Input should be a valid string"),
    ("upcoming", {"coins": "x" * 500_000}, "no coin has"),
    ("upcoming", {"categories": ["Unlock"]}, "Similar: Token Unlock"),
    ("upcoming", {"as_of": "2027-01-01"}, "still to come"),
    ("upcoming", {"as_of": "500w"}, "before the first pull"),
    ("upcoming", {"as_of": "yesterdai"}, "expected ISO 8601"),
    ("upcoming", {"within": 7}, "7 has no unit"),
    ("upcoming", {"within": "1M"}, "write days, such as 30d"),
    ("upcoming", {"coin": "BTC"}, 'coin: there is no such argument; got "BTC". upcoming takes'),
    ("upcoming", {"limit": 1_001}, "limit: Input should be less than or equal to 1000; got 1001"),
    ("upcoming", {"limit": 10.5}, "limit: Input should be a valid integer"),
    ("upcoming", {"limit": float("inf")}, "limit: Input should be a finite number; got Infinity"),
    ("upcoming", {"coins": [{"x": float("nan")}]}, 'got {"x": NaN}'),
    ("upcoming", {"min_impact": float("nan")}, "expected a score from 0 to 10"),
    ("upcoming", {"offset": "nan"}, "offset: Input should be a valid integer"),
    ("upcoming", {"estimated": "maybe"}, "'include', 'drop' or 'only'"),
    ("upcoming", {"min_impact": 11}, "expected a score from 0 to 10, or Low, Mid, High, Critical"),
    ("events_as_of", {"status": "moved"}, "expected scheduled, cancelled, withdrawn"),
    (
        "events_as_of",
        {"from": "2026-03-12", "to": "2026-03-11"},
        "to='2026-03-11' is not after",
    ),
    ("events_as_of", {"from": "monday"}, "from='monday' is not a timestamp"),
    ("events_as_of", {"to": "31.12.2026"}, "to='31.12.2026' is not a timestamp"),
    ("history_of", {"event_id": None}, "event_id: it is needed"),
    ("history_of", {"event_id": "x' OR 1=1 --"}, "was known at"),
    ("what_changed", {"until": "2026-03-02"}, "since: it is needed"),
    (
        "what_changed",
        {"since": "last week"},
        "yesterday or tomorrow; an age, such as 7d",
    ),
    ("what_changed", {"since": "2026-03-04", "kinds": ["moved"]}, "rescheduled"),
    ("what_changed", {"since": "2026-03-04", "until": "2026-03-02"}, "is before since"),
    ("query", {"table": "evnts"}, "Similar: events"),
    ("query", {"sql": "SELECT * FROM evnts"}, "evnts does not exist"),
    ("query", {"sql": "SELECT 1; SELECT 2"}, "expected one statement"),
    ("query", {"sql": "SELECT $ts"}, "write it into the statement"),
    ("query", {"query": "SELECT 1"}, "query takes"),
    ("resolve_coin", {"coin": "BTC"}, "the tools are upcoming"),
)
OF_PYTHON = re.compile(r"None|True|False|Traceback|[Tt]imedelta|datetime|db\.|\w=\{|\[type=|pandas")


@pytest.mark.parametrize(("name", "written", "meant"), READ, ids=str)
def test_forms_of_assistants_are_read(
    toolbox: Toolbox, name: str, written: dict[str, Any], meant: dict[str, Any]
) -> None:
    assert toolbox.call(name, written) == toolbox.call(name, meant)


@pytest.mark.parametrize(("name", "given", "expected"), REFUSED, ids=lambda value: str(value)[:60])
def test_refusals_say_what_was_expected(
    toolbox: Toolbox, mcp_file: Path, name: str, given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AlmanacError) as raised:
        toolbox.call(name, given)
    message = str(raised.value)
    assert expected in message
    assert OF_PYTHON.search(message) is None, message
    assert str(mcp_file.parent) not in message
    assert len(message) < 2_000


@pytest.mark.parametrize(
    ("name", "given", "sql"),
    [
        (
            "upcoming",
            {"min_impact": "High", "within": "30d", "coins": "BTC/USDT, First Sun"},
            "FROM upcoming_as_of($now) WHERE list_has_any(coins, ['bitcoin', 'first-sun']) "
            "AND (impact >= 5 OR impact_band IN ('High', 'Critical')) "
            "ORDER BY date_exact IS NULL, earliest, event_id",
        ),
        (
            "events_as_of",
            {"from": "2026-03-10", "to": "2026-03-12", "as_of": "24h"},
            "FROM events_as_of($now::TIMESTAMPTZ - INTERVAL 1 DAY) "
            "WHERE earliest < '2026-03-13' AND latest > '2026-03-10' "
            "ORDER BY is_estimated, earliest, event_id",
        ),
        (
            "what_changed",
            {"since": "96h", "kinds": "Rescheduled,Cancelled", "categories": ["token unlock"]},
            "FROM changes WHERE known_from > '2026-03-04 12:00:00+00' AND kind = 'rescheduled'",
        ),
        (
            "history_of",
            {"event_id": "moved", "as_of": "2026-03-04", "limit": "5"},
            "FROM event_versions WHERE event_id = 'moved' AND known_from < '2026-03-04'",
        ),
    ],
)
def test_answers_are_those_of_sql(
    toolbox: Toolbox, mcp_file: Path, name: str, given: dict[str, Any], sql: str
) -> None:
    with almanac.open(mcp_file, clock=lambda: NOW) as database:
        values = {"now": NOW} if "$now" in sql else {}
        rows = [row["event_id"] for row in database.sql(f"SELECT event_id {sql}", **values)]
    answer = toolbox.call(name, given)
    assert rows
    assert [row["event_id"] for row in answer["rows"]] == rows
    assert answer["total_rows"] == len(rows)


def test_exact_dates_come_first(toolbox: Toolbox) -> None:
    for name, given in (("upcoming", {"within": "30d"}), ("events_as_of", {})):
        rows = toolbox.call(name, {**given, "coins": "BTC,First Sun"})["rows"]
        assert [(row["event_id"], row["is_estimated"]) for row in rows] == [
            ("moved", False),
            ("quarter", True),
        ]
        assert rows[1]["earliest"] < rows[0]["earliest"]


def test_tools_are_six_and_short() -> None:
    described = {name: tool.describe() for name, tool in TOOLS.items()}
    assert len(described) == 6
    assert len(str(described)) < 9_000
    for kind in KINDS:
        assert kind in described["what_changed"][1]["properties"]["kinds"]["description"]
    for status in STATUSES:
        assert status in described["events_as_of"][1]["properties"]["status"]["description"]
    assert NOW - timedelta(days=7) == read_timestamp(SINCE, "since")
