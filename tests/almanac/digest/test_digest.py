"""What a digest says: every change once, the important first, and how old the knowledge is."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from almanac.command_line import main
from almanac.database import open_database
from almanac.digest import Digest, as_json, as_text, compute_digest
from almanac.events import KINDS
from almanac.reader import Reader
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

FIRST = datetime(2026, 3, 1, 6, tzinfo=UTC)
YESTERDAY = FIRST + timedelta(days=1)
LAST = FIRST + timedelta(days=2)
NOW = LAST + timedelta(hours=3)


def on(day: int, month: int = 3, hour: int = 0) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def event(name: str, *changes: tuple[str, dict[str, Any]], **first: Any) -> list[Known]:
    """Return the versions of an event: known at the first pull, then changed at the last."""
    known: dict[str, Any] = {"event_id": name, "title": name, "date": on(20), **first}
    found = [Known(known_from=FIRST, **known)]
    for number, (kind, changed) in enumerate(changes):
        known |= changed
        at = YESTERDAY + (LAST - YESTERDAY) * ((number + 1) / len(changes))
        options = {**known, "changed_fields": tuple(changed), "change_kinds": tuple(kind.split())}
        found.append(Known(version=number + 2, known_from=at, **options))
    return found


def date(day: int, month: int = 3, hour: int = 0) -> dict[str, Any]:
    shown = on(day, month, hour).strftime("%d %b")
    return {"date": on(day, month, hour), "displayed_date": shown}


UNLOCK: dict[str, Any] = {"coins": ("bitcoin",), "categories": ("Token Unlock",)}
VERSIONS = [
    *event("off", ("cancelled", {"status": "cancelled"}), **UNLOCK, **date(20)),
    *event("gone", ("withdrawn", {"status": "withdrawn"}), impact_band="High", **date(21)),
    *event(
        "back",
        ("cancelled", {"status": "cancelled"}),
        ("restored", {"status": "scheduled"}),
        **date(22),
    ),
    *event("slipped", ("rescheduled", date(24)), impact=8.0, **date(20)),
    *event("hours", ("rescheduled", date(20, hour=18)), impact=3.0, **date(20, hour=12)),
    *event(
        *("twice", ("rescheduled", date(25)), ("rescheduled", date(26, 4))),
        **date(20),
    ),
    *event(
        "exact",
        ("rescheduled made_exact", {**date(29), "date_type": "date", "is_estimated": False}),
        date=on(31),
        date_type="quarter",
        is_estimated=True,
        displayed_date="Q1 2026",
    ),
    *event(
        *("scored", ("rescored", {"impact": 8.1})),
        impact=1.9,
        source_url="https://x.example/a",
        **date(20),
    ),
    *event("banded", ("rescored", {"impact_band": "Critical"}), impact_band="Mid", **date(20)),
    *event("edited", ("revised", {"title": "edited", "source_url": "https://x.example/b"})),
    Known(event_id="new", title="new", known_from=LAST, change_kinds=("created",), **date(28, 8)),
    *(
        Known(event_id=f"seen {n}", known_from=LAST, change_kinds=("revealed",), **date(9, 9))
        for n in range(25)
    ),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    coins = [NamedCoin("bitcoin", "btc", "Bitcoin", 1)]
    return publish_by_hand(path, VERSIONS, pulls=[FIRST, YESTERDAY, LAST], coins=coins)


@cache
def reader(file: Path, clock: datetime) -> Reader:
    return Reader(file, clock=lambda: clock)


def digest(file: Path, *, clock: datetime = NOW, **options: Any) -> Digest:
    return compute_digest(reader(file, clock), **{"since": YESTERDAY, **options})


def rows_of(found: Digest) -> list[dict[str, Any]]:
    return [row for section in found.sections for rows in section.entries for row in rows]


def section_lines(text: str, title: str) -> list[str]:
    part = text.partition(f"\n{title}")[2].partition("\n\n")[0]
    return [" ".join(line.split()) for line in part.splitlines()[1:]]


def test_a_time_of_day_that_became_known_or_unknown_is_said(tmp_path: Path) -> None:
    versions = [
        *event("refined", ("rescheduled", date(20, hour=8)), **date(20)),
        *event("loosened", ("rescheduled", date(21)), **date(21, hour=18)),
        *event("end alone", ("rescheduled", {"date_end": on(22, hour=20)}), **date(22, hour=8)),
    ]
    path = publish_by_hand(
        tmp_path / "warehouse.duckdb", versions, pulls=[FIRST, YESTERDAY, LAST], coins=[]
    )
    assert section_lines(as_text(digest(path)), "Rescheduled (3)") == [
        "refined: 20 Mar 2026, now at 08:00 UTC",
        "loosened: 21 Mar 2026, now without a time of day",
        "end alone: 22 Mar 2026",
    ]


def test_every_kind_of_change_is_said_in_words_with_old_and_new(file: Path) -> None:
    text = as_text(digest(file))
    # Titles are below each other, beside tickers and impacts of any length.
    places = {
        text.index(name, at) - at
        for name in ("off:", "back:", "slipped:", "scored:")
        for at in [text.rindex("\n", 0, text.index(f"  {name}"))]
    }
    assert len(places) == 1
    assert section_lines(text, "Cancelled (2)") == [
        *("BTC off: was 20 Mar 2026", "back: was 22 Mar 2026"),
    ]
    assert section_lines(text, "Rescheduled (4)") == [
        "8 slipped: 20 Mar 2026 → 24 Mar 2026, 4 days later",
        "3 hours: 20 Mar 2026, 6 h later",
        "exact: Q1 2026 → 29 Mar 2026",
        "twice: 20 Mar 2026 → 25 Mar 2026 → 26 Apr 2026, 37 days later",
    ]
    assert section_lines(text, "Date now exact (1)") == ["exact: Q1 2026 → 29 Mar 2026"]
    assert section_lines(text, "Rescored (2)") == [
        "Critical banded: impact Mid → Critical, 20 Mar 2026",
        "8.1 scored: impact 1.9 → 8.1, 20 Mar 2026 https://x.example/a",
    ]
    assert section_lines(text, "New (1)") == ["new: 28 Aug 2026"]
    assert section_lines(text, "Withdrawn (1)") == ["High gone: was 21 Mar 2026"]
    assert section_lines(text, "Scheduled again") == ["back: cancelled → scheduled, 22 Mar 2026"]
    assert section_lines(text, "Revised") == ["edited: title, source https://x.example/b"]
    assert section_lines(text, "First seen (25)") == ["not listed; --kinds revealed lists them"]


def test_the_head_line_has_the_period_the_counts_and_the_last_pull(file: Path) -> None:
    assert as_text(digest(file)).splitlines()[:2] == [
        "Almanac, 2026-03-02 06:00 to 2026-03-03 09:00 UTC: 2 cancelled, "
        "4 rescheduled, 1 made exact, 2 rescored, 1 created, 1 withdrawn, 1 restored, 1 revised, "
        "25 revealed.",
        "Last pull: 2026-03-03 06:00 UTC.",
    ]


def test_old_knowledge_is_said_to_be_stale(file: Path) -> None:
    old = digest(file, clock=LAST + timedelta(days=4), since=LAST)
    assert as_text(old) == (
        "Almanac, 2026-03-03 06:00 to 2026-03-07 06:00 UTC: nothing changed.\n"
        "STALE: Last pull: 2026-03-03 06:00 UTC. Later changes are not known.\n"
    )
    assert as_json(old)["stale"] is True
    assert as_json(digest(file))["stale"] is False
    # As of an instant in the past, what was pulled later is not known.
    past = digest(file, since=FIRST, until=YESTERDAY - timedelta(minutes=1))
    assert past.last_pull_at == FIRST


def test_a_period_may_begin_before_the_first_pull_whose_events_are_counted(file: Path) -> None:
    first = digest(file, since="2026-02-01", until=FIRST)
    assert [(section.kind, section.events) for section in first.sections] == [("revealed", 10)]
    text = as_text(first)
    assert "The first pull was at 2026-03-01 06:00 UTC; before it nothing was known." in text
    assert digest(file, since="2026-02-01").sections[-1].events == 35
    none = digest(file, since="2026-01-01", until="2026-02-01")
    assert "No pull had succeeded by then: nothing was known." in as_text(none)


def test_many_revealed_events_are_a_count_unless_they_are_requested(file: Path) -> None:
    (counted,) = [section for section in digest(file).sections if section.kind == "revealed"]
    assert (counted.events, len(counted.entries)) == (25, 0)
    assert as_json(digest(file))["not_listed"] == {"revealed": 25}
    (listed,) = digest(file, kinds=["revealed"]).sections
    assert len(listed.entries) == 25


@pytest.mark.parametrize("named", [["rescheduled", "revealed"], list(KINDS)], ids=str)
def test_the_rows_of_json_are_those_of_changes(file: Path, named: list[str]) -> None:
    shown = as_json(digest(file, kinds=named))
    with open_database(file, clock=lambda: NOW) as database:
        wanted = database.changes(YESTERDAY, kinds=named).rows()
    names = ("event_id", "version", "known_from", "kind", "old_value", "new_value", "impact")
    same = [{name: row[name] for name in names} for row in shown["rows"]]
    assert sorted(same, key=str) == sorted(
        ({name: row[name] for name in names} for row in wanted), key=str
    )
    assert sum(count["changes"] for count in shown["counts"].values()) == len(wanted)


def test_the_highest_impact_is_first_then_the_soonest_and_last_what_is_over(
    tmp_path: Path,
) -> None:
    created = {"known_from": LAST, "change_kinds": ("created",)}
    events = [
        ("late low", on(9), 1.0),
        ("over", on(2), 9.9),
        ("soon critical", on(10), 7.5),
        ("soon low", on(8), 2.4),
        ("late critical", on(11), 10.0),
        ("unknown", on(7), None),
        ("mid", on(12), 2.5),
        ("same low", on(13), 1.0),
    ]
    versions = [
        Known(event_id=name, title=name, date=date, impact=impact, **created)
        for name, date, impact in events
    ]
    file = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=[FIRST, LAST])
    (section,) = digest(file).sections
    assert [entry[-1]["title"] for entry in section.entries] == [
        *("late critical", "soon critical", "mid", "soon low", "late low", "same low", "unknown"),
        "over",
    ]
    limited = digest(file, limit=2)
    assert section_lines(as_text(limited), "New (8)")[-1] == "and 6 more"
    assert as_text(limited).endswith("\n--limit N lists more events of each kind.\n")
    assert as_json(limited)["not_listed"] == {"created": 6}


ESTIMATED: dict[str, Any] = {
    "date": on(31, 12),
    "date_type": "year",
    "is_estimated": True,
    "displayed_date": "2026",
}


def test_a_move_after_a_date_became_exact_is_shown_in_both_sections(tmp_path: Path) -> None:
    exact = {"date_type": "date", "is_estimated": False, **date(20, 12)}
    versions = [
        *event(
            "exact then moved",
            *(("rescheduled made_exact", exact), ("rescheduled", date(26, 11))),
            **ESTIMATED,
        ),
        *event(
            "exact and back",
            ("rescheduled made_exact", exact),
            ("rescheduled made_estimated", {**ESTIMATED, "displayed_date": "2027"}),
            **ESTIMATED,
        ),
    ]
    path = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=[FIRST, YESTERDAY, LAST])
    text = as_text(digest(path))
    both = "exact then moved: 2026 → 20 Dec 2026 → 26 Nov 2026"
    back = "exact and back: 2026 → 20 Dec 2026 → 2027"
    for section in ("Rescheduled (2)", "Date now exact (2)"):
        assert sorted(section_lines(text, section)) == [back, both]
    assert section_lines(text, "Date now estimated (1)") == ["exact and back: 20 Dec 2026 → 2027"]


def test_a_new_event_that_moved_in_the_period_is_listed_with_its_last_date(tmp_path: Path) -> None:
    versions = event("new", ("rescheduled", date(28)), change_kinds=("created",), **date(20))
    before = FIRST - timedelta(days=1)
    pulls = [before, FIRST, YESTERDAY, LAST]
    path = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=pulls)
    found = as_text(digest(path, since=before))
    assert section_lines(found, "New (1)") == ["new: 28 Mar 2026"]
    until_then = as_text(digest(path, since=before, until=YESTERDAY))
    assert section_lines(until_then, "New (1)") == ["new: 20 Mar 2026"]


@pytest.mark.parametrize("options", [{"coins": "BTC"}, {"categories": "token unlock"}])
def test_coins_and_categories_select_changes(file: Path, options: dict[str, Any]) -> None:
    found = digest(file, **options)
    assert [row["title"] for row in rows_of(found)] == ["off"]
    assert "Only " in as_text(found)


def test_a_least_impact_takes_whole_bands_and_counts_what_has_none(file: Path) -> None:
    found = digest(file, min_impact=7.5)
    assert sorted(row["title"] for row in rows_of(found)) == ["banded", "scored", "slipped"]
    assert found.unscored == 34
    assert "of at least 7.5; 34 without a known impact are left out." in as_text(found)


def test_a_home_without_scores_has_the_same_digest_without_them(tmp_path: Path) -> None:
    """Free hides score, band, categories and source."""
    hidden = ("impact", "impact_band", "categories", "source_url")
    versions = [
        replace(version, impact=None, impact_band=None, unknown_fields=hidden)
        for version in VERSIONS
        if "rescored" not in version.change_kinds
    ]
    file = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=[FIRST, LAST])
    text = as_text(digest(file))
    assert "slipped: 20 Mar 2026 → 24 Mar 2026, 4 days later" in section_lines(text, "Rescheduled")
    assert "impact" not in text.replace("known impact", "")
    assert "nothing changed" in as_text(digest(file, min_impact=5))


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_of_the_wheel_prints_each_form(
    file: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    words = ["changes", "--home", str(file), "--since", "2026-03-02T06:00Z", "--format", form]
    filters = ["--coins", "BTC, bitcoin", "--kinds", "cancelled,rescored", "--limit", "3"]
    assert main([*words, *filters]) == 0
    shown = capsys.readouterr().out
    assert "20 Mar 2026" in shown
    if form == "json":
        assert json.loads(shown)["text"].endswith("1 cancelled.")
    assert main([*words, "--kinds", "moved"]) == 2
    assert "kinds='moved'; expected cancelled" in capsys.readouterr().err
