"""A report: one file that loads nothing, and knows nothing that became known later."""

import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import SecretStr

from almanac.database import open_database
from almanac.errors import AlmanacError, QueryRefused
from application.web.html_report import ReportRequest, make_digest, next_report, read_marks
from tests.application.report.reported_home import (
    NOW,
    PULLS,
    VERSIONS,
    ReportedHome,
    known,
    make_reported_home,
)
from tests.history.stories.handmade import HandmadeHome, event
from tests.pipeline.small_home import DAY

CANARY = "canary-6f21"
HOSTILE = (
    "<script>alert(1)</script>",
    "</td></table></style><img src=x onerror=alert(1)>",
    "\x1b[31mred\x00\x07\u202egnp.exe\u2028line\r\n# heading",
    "שלום עולם, اختبار العناوين",
    "x" * 20_000,
    "{{ 7 * 7 }} {% raw %} $(id) %s",
)


class Page(HTMLParser):
    """The elements, attributes, identifiers and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.attributes if each == name]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> ReportedHome:
    return make_reported_home(tmp_path_factory.mktemp("unchanged") / "home")


@pytest.fixture
def own(tmp_path: Path) -> ReportedHome:
    return make_reported_home(tmp_path / "home")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a report of hostile texts, with secrets in the settings of its home."""
    made = make_reported_home(
        tmp_path_factory.mktemp("machine-folder") / "home",
        base_url="https://api.example.com",
        api_key=SecretStr(f"{CANARY}-key"),
        digest_url=SecretStr(f"https://hooks.example.com/{CANARY}"),
    )
    events = [
        known(
            f"evt_{n}",
            20,
            NOW.replace(hour=0) + 3 * DAY,
            title=text,
            impact=10.0 - n / 10,
            coins=(text[:60], "bitcoin"),
            categories=(text[:60],),
            change_kinds=("created",),
            displayed_date=text[:40],
            source_url="javascript:alert(1)" if n % 2 else 'https://example.com/?q="><script>',
        )
        for n, text in enumerate(HOSTILE)
    ]
    made.publish([*VERSIONS, *events])
    return made.report()


def test_hostile_texts_make_no_element_and_are_cut(hostile: str) -> None:
    page = Page(hostile)
    assert not page.elements & {"script", "img", "form", "input", "button", "link", "iframe"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }} {% raw %} $(id) %s" in page.text
    assert "x" * 300 not in hostile
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2028\u2029]", hostile)


def test_file_loads_nothing_and_links_sources_alone(hostile: str) -> None:
    page = Page(hostile)
    assert not {"src", "srcset", "action", "poster", "data"} & dict(page.attributes).keys()
    assert all(re.match(r"#[\w-]+\Z|https://example\.com/", url) for url in page.values("href"))
    assert "https://example.com/?q=%22%3E%3Cscript%3E" in page.values("href")
    assert not re.search(r"@import|url\(", hostile)
    assert "default-src 'none'" in hostile
    identifiers = page.values("id")
    assert len(identifiers) == len(set(identifiers))
    assert {url[1:] for url in page.values("href") if url.startswith("#")} <= set(identifiers)


def test_file_has_no_secret_and_no_folder_of_the_machine(hostile: str) -> None:
    assert CANARY not in hostile
    assert "machine-folder" not in hostile


def test_report_has_what_comes_what_changed_and_the_quality(home: ReportedHome) -> None:
    text = Page(home.report()).text
    coming, changed, quality = re.split("What changed Became|Data quality Warnings", text)
    for name in ("soon", "timed", "slips", "earlier"):
        assert f"Event {name}" in coming
    assert "Event far" not in coming
    assert "Rescheduled 3 changes of 2 events" in changed
    assert "Cancelled 1 change of 1 event" in changed
    assert "Event absent" in quality
    assert "source sandbox:1" in quality


def test_estimated_event_has_no_exact_date(home: ReportedHome) -> None:
    report = home.report()
    assert "Event quarter" in report
    assert "Q1 2026" in report
    assert "31 Mar" not in report
    assert "2026-03-31" not in report


def test_report_of_a_past_time_has_nothing_that_became_known_later(own: ReportedHome) -> None:
    asked = {"since": PULLS[2], "until": PULLS[16], "as_of": PULLS[16]}
    whole = own.report(**asked)
    own.publish(days=17)
    published_then = own.report(now=PULLS[16], **asked)
    assert "Event slips" in whole
    assert "Cancelled" not in Page(whole).text
    made = re.compile(r"Made by Almanac at .*? last pull|Bytes.*|Size of the file.*")
    assert made.sub("", Page(whole).text) == made.sub("", Page(published_then).text)


def test_filters_select_coming_events_and_changes(home: ReportedHome) -> None:
    text = home.report(coins=("slug:bitcoin",), category="token unlock", min_impact=5.0)
    assert "Event soon" in text
    assert "Event timed" not in text
    assert "Event dropped" not in text
    both = home.report(coins=("slug:bitcoin", "slug:ethereum"))
    assert "Event soon" in both
    assert "Event timed" in both


@pytest.mark.parametrize(
    "given",
    [
        {"coins": ("nothing-like-it",)},
        {"category": "nothing-like-it"},
        {"min_impact": 11.0},
        {"as_of": PULLS[0] - DAY},
        {"since": PULLS[3], "until": PULLS[2]},
    ],
    ids=str,
)
def test_wrong_filter_or_time_is_an_error(home: ReportedHome, given: dict[str, object]) -> None:
    with pytest.raises(AlmanacError):
        home.report(**given)


def follow(home: ReportedHome, name: str = "mine", now: datetime = NOW) -> ReportRequest:
    with (
        open_database(home.file, clock=lambda: now) as database,
        next_report(home.small.home, database.reader, name, now) as request,
    ):
        return request


def test_each_report_begins_where_the_last_one_of_its_name_ended(own: ReportedHome) -> None:
    own.publish(days=17)
    assert follow(own) == ReportRequest(PULLS[16] - 7 * DAY, PULLS[16])
    own.publish()
    # A missed day is in the next report; reports of another name do not move it.
    assert follow(own, "other") == ReportRequest(PULLS[20] - 7 * DAY, PULLS[20])
    assert follow(own) == ReportRequest(PULLS[16], PULLS[20], (10, 13))
    # Without a new pull the same period is reported again.
    assert follow(own, now=NOW + DAY) == ReportRequest(PULLS[16], PULLS[20], (10, 13))
    assert read_marks(own.small.home)["mine"].at == NOW + DAY


def test_change_that_is_dated_before_the_last_report_is_in_the_next(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)

    def report() -> list[str]:
        with (
            open_database(story.home.warehouse, clock=lambda: NOW) as database,
            next_report(story.home, database.reader, "mine", NOW) as request,
        ):
            sections = make_digest(database.reader, request).sections
        return [row["event_id"] for each in sections for rows in each.entries for row in rows]

    story.listed("10 06:00", event("a"), event("b"))
    story.merge()
    assert report() == ["a", "b"]
    story.deliveries(("09 06:00", "2026-03-09T06:00:00Z", event("late")))
    story.merge()
    assert [report(), report()] == [["late"], ["late"]]
    story.listed("11 06:00", event("c"), why_incomplete="cut")
    story.merge()
    assert report() == ["c"]


def test_page_of_changes_has_what_was_published_between_two_places(home: ReportedHome) -> None:
    text = home.report(places=(0, len(VERSIONS)), since=PULLS[20])
    assert "Event slips" in text
    assert "Event slips" not in home.report(places=(0, 0), days=1).split("What changed")[1]


def test_report_that_fails_moves_nothing(own: ReportedHome) -> None:
    with (
        open_database(own.file, clock=lambda: NOW) as database,
        pytest.raises(OSError, match="disk"),
        next_report(own.small.home, database.reader, "mine", NOW),
    ):
        raise OSError("disk")
    assert read_marks(own.small.home) == {}


def test_damaged_record_counts_as_none(own: ReportedHome) -> None:
    follow(own)
    (own.small.home.state / "reports.json").write_text("{}")
    assert follow(own).since == PULLS[20] - 7 * DAY


def test_home_without_a_pull_has_nothing_to_report(own: ReportedHome) -> None:
    with pytest.raises(QueryRefused, match="before the first pull"):
        own.report(as_of=PULLS[0] - timedelta(seconds=1))
