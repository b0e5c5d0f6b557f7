"""The answers of the tools: what each has, truncation, past times, errors, new publications."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from almanac.core.errors import AlmanacError
from almanac.mcp.query_process import BYTES_MAX
from almanac.mcp.toolbox import Toolbox
from almanac.mcp.tools import TOOLS
from tests.almanac.mcp.conftest import NOW, at, publish

EXAMPLES: dict[str, dict[str, Any]] = {
    "upcoming": {"within": "30d"},
    "events_as_of": {"as_of": "2026-03-04", "status": "all"},
    "history_of": {"event_id": "moved"},
    "what_changed": {"since": "2026-03-01T12:00:00Z"},
    "coverage": {},
    "query": {"sql": "SELECT event_id, date FROM events ORDER BY ALL"},
}


@pytest.mark.parametrize("name", TOOLS)
def test_each_answer_has_its_time_its_age_and_rows(toolbox: Toolbox, name: str) -> None:
    Draft202012Validator.check_schema(TOOLS[name].describe()[1])
    answer = toolbox.call(name, EXAMPLES[name])
    assert answer["rows"]
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert set(answer["snapshot"]) == {"id", "published_at"}
    assert answer["first_pull_at"] == "2026-03-01T06:00:00Z"
    last = "2026-03-03T06:00:00Z" if answer["as_of"] < "2026-03-04T06" else "2026-03-08T06:00:00Z"
    assert (answer["last_pull_at"], answer["stale"]) == (last, False)


def test_stale_data_is_said_in_a_sentence(mcp_file: Path) -> None:
    stale = Toolbox(mcp_file, clock=lambda: at(9, 18) + timedelta(seconds=1))
    fresh = Toolbox(mcp_file, clock=lambda: at(9, 18))
    for name, given in EXAMPLES.items():
        answer = stale.call(name, {key: given[key] for key in given if key != "as_of"})
        assert answer["stale"], name
        assert "stale: the last pull was at 2026-03-08 06:00 UTC, 1.5 days before" in answer["note"]
    assert not fresh.call("upcoming", {})["stale"]
    before = fresh.call("coverage", {"as_of": "2026-02-01"})
    assert (before["stale"], before["last_pull_at"]) == (True, None)
    assert "the last pull was none" in before["note"]
    for toolbox in (stale, fresh):
        toolbox.close()


def test_rows_are_cut_by_number_and_read_on_by_offset(toolbox: Toolbox) -> None:
    given = {"as_of": "2026-03-04", "limit": 40}
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        answer = toolbox.call("events_as_of", {**given, "offset": offset})
        assert answer["truncated"]
        assert answer["truncated_by"] == ("offset" if answer["next_offset"] is None else "rows")
        assert answer["total_rows"] == 302
        found += [row["event_id"] for row in answer["rows"]]
        offset = answer["next_offset"]
    assert (len(found), len(set(found))) == (302, 302)
    after = toolbox.call("events_as_of", {**given, "offset": 1_000})
    assert (after["rows"], after["truncated"], after["next_offset"]) == ([], True, None)


def test_rows_are_cut_by_bytes(toolbox: Toolbox) -> None:
    answer = toolbox.call("events_as_of", {"as_of": "2026-03-04", "limit": 1_000})
    assert (answer["truncated_by"], answer["next_offset"]) == ("bytes", len(answer["rows"]))
    size = len(json.dumps(answer["rows"], ensure_ascii=False).encode())
    assert BYTES_MAX * 0.9 < size <= BYTES_MAX * 1.01
    texts = {"sql": "SELECT repeat('x', 50000) AS x FROM range(3)"}
    answer = toolbox.call("query", texts)
    assert (len(answer["rows"]), answer["total_rows"]) == (1, 3)
    assert (answer["truncated"], answer["truncated_by"]) == (True, "bytes")
    cut = toolbox.call("query", {"sql": "FROM range(5)", "limit": 2})
    assert (len(cut["rows"]), cut["total_rows"], cut["truncated_by"]) == (2, 5, "rows")
    rest = toolbox.call("query", {"sql": "FROM range(5)", "limit": 2, "offset": cut["next_offset"]})
    assert [row["range"] for row in (*cut["rows"], *rest["rows"])] == [0, 1, 2, 3]
    whole = toolbox.call("query", {"sql": "FROM range(5)", "limit": 5})
    assert (whole["truncated"], whole["truncated_by"], whole["total_rows"]) == (False, None, 5)


def test_past_times_show_only_what_was_known(toolbox: Toolbox) -> None:
    before = toolbox.call("history_of", {"event_id": "moved", "as_of": "2026-03-04"})
    assert [row["displayed_date_full"] for row in before["rows"]] == ["10 Mar 2026"]
    assert before["rows"][0]["known_to"] is None
    after = toolbox.call("history_of", {"event_id": "moved"})
    assert [row["change_kinds"] for row in after["rows"]] == [["revealed"], ["rescheduled"]]
    (then,) = toolbox.call("upcoming", {"as_of": "2026-03-04", "coins": ["BTC"]})["rows"]
    assert then["date_exact"] == "2026-03-10T12:00:00Z"
    with pytest.raises(AlmanacError, match="was known at 2026-03-01"):
        toolbox.call("history_of", {"event_id": "quarter", "as_of": "2026-03-01T12:00:00Z"})
    changes = toolbox.call("what_changed", {"since": "2026-03-01T12:00:00Z", "until": "2026-03-04"})
    assert "moved" not in {row["event_id"] for row in changes["rows"]}
    assert changes["as_of"] == "2026-03-04T00:00:00Z"


@pytest.mark.parametrize("name", ["upcoming", "events_as_of", "history_of"])
def test_an_estimated_event_has_no_exact_date(toolbox: Toolbox, name: str) -> None:
    given: dict[str, Any] = {"coins": ["slug:first-sun"]}
    if name == "history_of":
        given = {"event_id": "quarter"}
    elif name == "upcoming":
        given["within"] = "60d"
    (row,) = toolbox.call(name, given)["rows"]
    assert (row["date_exact"], row["displayed_date_full"]) == (None, "Q1 2026")
    assert not {"date", "date_end"} & {key for key, value in row.items() if value is not None}


def test_no_pull_yet_is_an_error_that_says_how_to_pull(tmp_path: Path) -> None:
    file = publish(tmp_path / "warehouse.duckdb", until=at(1))
    toolbox = Toolbox(file, clock=lambda: NOW)
    try:
        with pytest.raises(AlmanacError, match="almanac run"):
            toolbox.call("upcoming", {})
        assert toolbox.call("coverage", {})["rows"] == []
    finally:
        toolbox.close()


def test_a_new_publication_is_read_by_the_next_call(tmp_path: Path) -> None:
    file = publish(tmp_path / "warehouse.duckdb", until=at(4))
    toolbox = Toolbox(file, clock=lambda: NOW)
    count = {"sql": "SELECT count(*) AS n FROM event_versions WHERE event_id = 'moved'"}
    try:
        before = [toolbox.call("history_of", {"event_id": "moved"}), toolbox.call("query", count)]
        publish(file)
        after = [toolbox.call("history_of", {"event_id": "moved"}), toolbox.call("query", count)]
    finally:
        toolbox.close()
    assert [answer["total_rows"] for answer in (before[0], after[0])] == [1, 2]
    assert [answer["rows"][0]["n"] for answer in (before[1], after[1])] == [1, 2]


def test_values_that_json_lacks_are_read(toolbox: Toolbox) -> None:
    sql = (
        "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS n, 'infinity'::TIMESTAMP AS i, "
        "MAP {1: 'x'} AS m, TIMESTAMPTZ '2026-03-01 00:00:00+00' AS t, 1.5::DECIMAL(5, 2) AS d, "
        "INTERVAL 3 DAY AS v, '290000-01-01'::TIMESTAMP AS far, 9007199254740993 AS big, "
        "9007199254740992 AS last, [{'x': -9007199254740993}] AS inner"
    )
    (row,) = toolbox.call("query", {"sql": sql})["rows"]
    assert (row["a"], row["a_1"], row["n"], row["m"]) == (1, 2, None, {"1": "x"})
    assert (row["t"], row["i"], row["d"]) == ("2026-03-01T00:00:00Z", "infinity", 1.5)
    assert (row["big"], row["last"]) == ("9007199254740993", 9007199254740992)
    assert row["inner"] == [{"x": "-9007199254740993"}]


def test_the_note_names_the_coin_that_was_taken(toolbox: Toolbox) -> None:
    for name, given in (("upcoming", {}), ("what_changed", {"since": "2026-03-02"})):
        answer = toolbox.call(name, {**given, "coins": "SUN", "ambiguous": "largest"})
        taken = "'SUN' is read as first-sun (First Sun), rank 40, the best of 2 coins."
        assert answer["note"].startswith(taken)
