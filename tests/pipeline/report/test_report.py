"""A report: its period, its numbers, its times of knowledge, and its file."""

import threading
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import almanac
from almanac.errors import InvalidArgument, QueryRefused
from pipeline.health.checks import read_health
from pipeline.report.report_facts import ReportFacts, ReportRequest
from pipeline.report.report_file import WrittenReport, put_file, read_marks, write_report
from pipeline.report.sections import ALL, split_upcoming
from tests.almanac.publications import NamedCoin
from tests.pipeline.report.reported_home import (
    ABSENCES,
    COINS,
    LISTING,
    NOW,
    PULLS,
    VERSIONS,
    ReportedHome,
    known,
    make_reported_home,
)
from tests.pipeline.small_home import DAY
from tests.warehouse.answers.handmade import Known
from warehouse.files.documents import put_note


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> ReportedHome:
    """Return a home for reports that move no mark."""
    return make_reported_home(tmp_path_factory.mktemp("unchanged") / "home")


@pytest.fixture
def reported(tmp_path: Path) -> ReportedHome:
    return make_reported_home(tmp_path / "home")


def current(at: datetime) -> dict[str, Known]:
    """Return the version of each event that was known at a time: an independent formulation."""
    return {version.event_id: version for version in VERSIONS if version.known_from <= at}


def over_at(version: Known) -> datetime:
    assert version.date is not None
    is_day = version.date.hour == 0
    return version.date + DAY if is_day else version.date


def is_missing(event_id: str, at: datetime) -> bool:
    return any(gap.event_id == event_id and gap.changed_at <= at for gap in ABSENCES)


def changes_between(since: datetime, until: datetime) -> Counter[str]:
    return Counter(
        kind
        for version in VERSIONS
        if since < version.known_from <= until
        for kind in version.change_kinds
    )


def counted(facts: ReportFacts) -> dict[str, int]:
    return {section.kind: section.changes for section in facts.digest.sections}


def monday(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0) - timedelta(days=at.weekday())


def test_first_report_covers_a_week_and_says_that_there_is_none_before(
    reported: ReportedHome,
) -> None:
    written = reported.report()
    assert written.facts.last_report is None
    assert written.facts.digest.since == PULLS[-1] - 7 * DAY
    assert "This is the first report" in written.text
    assert "There is no report before this one with the same filters." in written.text


def test_next_report_begins_where_the_last_one_ended(reported: ReportedHome) -> None:
    reported.publish(days=17)
    first = reported.report(now=PULLS[16] + timedelta(hours=1))
    reported.publish()
    second = reported.report()
    assert second.facts.digest.since == first.facts.digest.until == PULLS[16]
    assert counted(second.facts) == changes_between(PULLS[16], NOW)
    assert "first report" not in second.text


def test_change_that_was_pulled_but_not_published_is_in_the_next_report(
    reported: ReportedHome,
) -> None:
    reported.publish(days=18)
    reported.report(now=PULLS[18] + timedelta(minutes=1))  # The pull of that day is not published.
    reported.publish()
    assert counted(reported.report().facts) == changes_between(PULLS[17], NOW)


def test_since_moves_the_start_of_the_next_report_only_if_requested(
    reported: ReportedHome,
) -> None:
    reported.report(since=PULLS[3], moves_mark=False)
    assert read_marks(reported.small.home) == {}
    reported.report(since=PULLS[3])
    again = reported.report()
    assert again.facts.last_report == PULLS[-1]
    assert counted(again.facts) == {}
    assert "No pull was published since the last report. It was made at 2026-03-18 12:00 UTC." in (
        again.text
    )
    # A third report repeats the same period, which was not empty.
    for written in (again, reported.report()):
        assert "run `almanac report --since 2026-03-01T11:00:00Z`" in written.text


def test_reports_with_other_filters_do_not_move_each_other(reported: ReportedHome) -> None:
    reported.report(coins=("bitcoin",))
    assert reported.report().facts.last_report is None
    assert len(read_marks(reported.small.home)) == 2


def test_report_that_cannot_be_put_moves_nothing(reported: ReportedHome, tmp_path: Path) -> None:
    def put(written: WrittenReport) -> None:
        put_file(tmp_path / "missing" / "report.html", written.text)

    home = reported.small
    with pytest.raises(FileNotFoundError):
        write_report(home.settings, home.home, ReportRequest(), NOW, put)
    assert read_marks(home.home) == {}
    assert not (tmp_path / "missing").exists()


def test_file_that_cannot_be_replaced_keeps_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("before")
    put_file(file, "after")
    assert file.read_text() == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_two_reports_at_the_same_time_follow_each_other(reported: ReportedHome) -> None:
    threads = [threading.Thread(target=reported.report) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    befores = [written.facts.last_report for written in reported.put]
    assert befores == [None, PULLS[-1]]


def test_damaged_record_of_reports_counts_as_none(reported: ReportedHome) -> None:
    reported.report()
    (reported.small.home.state / "reports.json").write_text("{")
    assert reported.report().facts.last_report is None


@pytest.mark.parametrize("at", [NOW, PULLS[18], PULLS[12] + timedelta(hours=3)], ids=str)
def test_numbers_equal_an_independent_formulation(unchanged: ReportedHome, at: datetime) -> None:
    as_of = None if at == NOW else at
    facts = unchanged.report(since=PULLS[2], moves_mark=False, as_of=as_of).facts
    assert counted(facts) == changes_between(PULLS[2], at)
    begun, coming, estimated = split_upcoming(facts)
    listed = {row["event_id"] for row in coming}
    scheduled = {
        event_id: version
        for event_id, version in current(at).items()
        if version.status == "scheduled" and not is_missing(event_id, at)
    }
    assert listed == {
        event_id
        for event_id, version in scheduled.items()
        if not version.is_estimated
        and over_at(version) > at
        and version.date is not None
        and version.date < at + 14 * DAY
    }
    assert begun == []
    assert [row["event_id"] for row in estimated] == ["quarter"]
    assert facts.missing_events == sum(is_missing(name, at) for name in current(at))
    check_weeks(facts, at)
    check_categories(facts, at)
    check_leads(facts, at)


def check_weeks(facts: ReportFacts, at: datetime) -> None:
    kinds: dict[str, Counter[datetime]] = {
        name: Counter() for name in ("created", "cancelled", "slipped", "pulled_in")
    }
    for place, version in enumerate(VERSIONS):
        if version.known_from > at:
            continue
        for kind in version.change_kinds:
            if kind in kinds:
                kinds[kind][monday(version.known_from)] += 1
            elif kind == "rescheduled":
                before = VERSIONS[place - 1].date
                assert before is not None
                assert version.date is not None
                way = "slipped" if version.date > before else "pulled_in"
                kinds[way][monday(version.known_from)] += 1
    weeks = [monday(PULLS[0])]
    while weeks[-1] + 7 * DAY <= at:
        weeks.append(weeks[-1] + 7 * DAY)
    assert [row["week"] for row in facts.weeks] == [week.date() for week in weeks]
    for row, week in zip(facts.weeks, weeks, strict=True):
        assert {name: row[name] for name in kinds} == {
            name: counts[week] for name, counts in kinds.items()
        }
        begins = max(week, PULLS[0])
        assert row["upcoming"] == sum(
            version.status == "scheduled" and (version.is_estimated or over_at(version) > begins)
            for version in current(begins).values()
        )


def check_categories(facts: ReportFacts, at: datetime) -> None:
    last_pull = max(pull for pull in PULLS if pull <= at)
    (overall,) = (row for row in facts.categories if row["category"] is None)
    first = {version.event_id: version for version in reversed(VERSIONS)}
    now = current(at)
    due = [
        event_id
        for event_id in now
        if not first[event_id].is_estimated and over_at(first[event_id]) <= last_pull
    ]
    moves = {
        version.event_id
        for version in VERSIONS
        if "rescheduled" in version.change_kinds and version.known_from <= at
    }
    assert (overall["due"], overall["moved_due"], overall["cancelled_due"]) == (
        len(due),
        len(moves & set(due)),
        sum(now[event_id].status == "cancelled" for event_id in due),
    )
    by_name = {row["category"]: row["due"] for row in facts.categories}
    for name in ("Token Unlock", "Exchange Listing"):
        assert by_name[name] == sum(name in now[event_id].categories for event_id in due)


def check_leads(facts: ReportFacts, at: datetime) -> None:
    observed = [
        version
        for version in VERSIONS
        if "created" in version.change_kinds and version.known_from <= at
    ]
    assert sum(row["events"] for row in facts.lead_ranges) == len(observed)


def test_categories_equal_the_views_of_now(unchanged: ReportedHome) -> None:
    """The report's statement takes a time; the views of the warehouse take the present."""
    facts = unchanged.report(moves_mark=False).facts
    found = {
        row["category"]: (row["watched"], row["due"], row["moved_due"], row["cancelled_due"])
        for row in facts.categories
        if row["category"] is not None
    }
    assert found == expected_by_views(unchanged)


def expected_by_views(reported: ReportedHome) -> dict[str, tuple[int, ...]]:
    query = """
        SELECT s.category, s.watched, s.due, s.rescheduled_due, c.cancelled
        FROM category_stats AS s JOIN cancellation_stats AS c USING (category)
    """
    with almanac.open(reported.file) as database:
        rows: Iterable[dict[str, Any]] = database.sql(query).rows()
    return {row["category"]: tuple(list(row.values())[1:]) for row in rows}


def test_quota_feeds_and_warnings_equal_almanac_status(reported: ReportedHome) -> None:
    usage = {"at": NOW - 2 * DAY, "plan": "elite", "used": 250, "quota": 3000, "remaining": 2750}
    usage["reset_at"] = NOW + 13 * DAY
    state = reported.small.home.state
    (state / "requests").mkdir(parents=True)
    (state / "usage.jsonl").write_bytes(msgspec.json.encode(usage) + b"\n")
    lines = [
        msgspec.json.encode({"at": NOW - timedelta(hours=n), "status": 429 if n == 5 else 200})
        for n in range(1, 49)
    ]
    (state / "requests" / "2026-03-18.jsonl").write_bytes(b"\n".join(lines))
    written = reported.report()
    facts, quota = written.facts, written.facts.quota
    # 47 requests in two days, 46 of them after the reading, and 13 days to the reset.
    assert quota is not None
    assert (quota.used, quota.quota) == (250, 3000)
    assert quota.projected == 250 + 46 + ceil(47 / 2 * 13)
    assert f"| Projected use at the reset | {quota.projected} |" in written.text
    health = read_health(reported.small.settings, reported.small.home, NOW)
    assert health.quota is not None
    assert quota.projected == health.quota.projected
    assert facts.feeds == health.feeds
    assert facts.warnings == health.warnings


def test_past_report_has_no_word_of_what_became_known_later(reported: ReportedHome) -> None:
    later = "Renamed after the fact"
    reported.publish(
        [
            *VERSIONS,
            Known(
                **{
                    **as_values(VERSIONS[0]),
                    "version": 2,
                    "title": later,
                    "known_from": PULLS[-1],
                    "change_kinds": ("revised",),
                }
            ),
        ]
    )
    assert later in reported.report().text
    past = reported.report(as_of=PULLS[-2])
    assert later not in past.text
    assert "Event soon" in past.text
    assert read_marks(reported.small.home)["coins=;categories=;min_impact="].at == NOW


def as_values(version: Known) -> dict[str, Any]:
    return {name: getattr(version, name) for name in Known.__dataclass_fields__}


def test_time_before_the_first_pull_is_refused(unchanged: ReportedHome) -> None:
    with pytest.raises(QueryRefused, match="before the first pull"):
        unchanged.report(as_of=PULLS[0] - DAY)


def test_mark_of_an_older_release_is_read(reported: ReportedHome) -> None:
    mark = {"until": PULLS[-1], "at": NOW}
    put_note(reported.small.home.state_storage, "reports.json", {ALL: mark})
    again = reported.report()
    assert again.facts.last_report == PULLS[-1]
    assert "`almanac report --since TIME` shows an earlier period again." in again.text


def test_error_shows_times_as_iso_text_without_parts_of_a_second(unchanged: ReportedHome) -> None:
    at = PULLS[0] - DAY + timedelta(microseconds=5)
    with pytest.raises(QueryRefused, match=r"as_of=2026-02-25T11:00:00Z is before the first pull"):
        unchanged.report(as_of=at)


def test_coming_events_have_tickers_and_the_marks_of_the_pages(reported: ReportedHome) -> None:
    twin = NamedCoin("bitcoin-two", "btc", "Bitcoin Two", 3)
    reported.publish(coins=(*COINS, twin))
    text = reported.report().text
    row = next(line for line in text.splitlines() if "Event slips |" in line)
    assert "| Bitcoin |" in row  # Two coins have the ticker BTC.
    assert "| moved 1 h ago from 21 Mar 2026 |" in row
    row = next(line for line in text.splitlines() if "Event timed |" in line)
    assert "| ETH | new 5 days ago |" in row


def test_first_row_of_the_changes_is_the_most_important_change(unchanged: ReportedHome) -> None:
    text = unchanged.report(since=PULLS[2], moves_mark=False).text
    assert "Most important change: rescheduled: Event slips (BTC): " in text
    table = text.partition("**Rescheduled (2 events)**")[2].splitlines()
    assert "Event slips" in table[4]


def test_tables_that_leave_events_out_say_how_to_see_all(reported: ReportedHome) -> None:
    date = NOW.replace(hour=0) + 3 * DAY
    many = [
        known(f"e{n}", 20, date, impact=n / 10, change_kinds=("created",), **LISTING)
        for n in range(12)
    ]
    reported.publish([*VERSIONS, *many])
    text = reported.report(min_impact=0).text
    assert "(12 events, 8 shown; all: `/?from=2026-03-21&to=2026-03-21&impact=0`)" in text
    assert (
        "run `almanac changes --since 2026-03-11T11:00:00Z --until 2026-03-18T11:00:00Z --limit "
        "1000 --min-impact 0`" in text
    )
    assert "**New (13 events, 10 shown)**" in text


def test_future_time_is_refused(unchanged: ReportedHome) -> None:
    with pytest.raises(InvalidArgument, match="still to come"):
        unchanged.report(as_of=NOW + DAY)


def test_filters_select_coming_events_and_changes_alike(unchanged: ReportedHome) -> None:
    given: dict[str, Any] = {"categories": ("token unlock",), "since": PULLS[2], "min_impact": 5}
    facts = unchanged.report(moves_mark=False, **given).facts
    assert {row["event_id"] for row in facts.upcoming} == {"soon", "slips"}
    assert counted(facts) == {"rescheduled": 2}
    assert facts.categories[0]["due"] == 3
