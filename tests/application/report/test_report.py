"""A report: one file that loads nothing, and knows nothing that became known later."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from pydantic import SecretStr

from almanac.core.errors import AlmanacError
from almanac.database import open_database
from application.web.html_report import next_report, read_marks
from tests.application.report.reported_home import (
    NOW,
    PULLS,
    VERSIONS,
    ReportedHome,
    known,
    make_reported_home,
)
from tests.history.stories.handmade import HandmadeHome, event
from tests.pipeline.conftest import Almanac
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
        alert_url=SecretStr(f"https://hooks.example.com/{CANARY}"),
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
    assert CANARY not in hostile
    assert "machine-folder" not in hostile
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


def test_report_has_what_comes_what_changed_and_the_quality(home: ReportedHome) -> None:
    report = home.report()
    assert "Event quarter" in report and "Q1 2026" in report
    # The strip has a square for each day.
    listed = re.sub('<svg class="heat".*?</svg>', "", report, flags=re.DOTALL)
    assert "31 Mar" not in listed and "2026-03-31" not in listed, "estimated: no exact date"
    text = Page(report).text
    coming, changed, quality = re.split("What changed Became|Data quality Warnings", text)
    for name in ("soon", "timed", "slips", "earlier"):
        assert f"Event {name}" in coming
    assert "Event far" not in coming
    assert "Cancelled: 1, Rescheduled: 3, New: 1." in changed
    assert "Event slips 6.0 Rescheduled 10 Mar 2026 → 21 Mar 2026 11 days later" in changed
    assert "Event absent" in quality
    assert "Sourceembedded sandbox, seed 7, pace 1" in quality


def test_report_of_a_past_time_has_nothing_that_became_known_later(own: ReportedHome) -> None:
    asked = {"since": PULLS[2], "until": PULLS[16], "as_of": PULLS[16]}
    whole = own.report(**asked)
    own.publish(days=17)
    published_then = own.report(now=PULLS[16], **asked)
    assert "Event slips" in whole
    assert "Cancelled" not in Page(whole).text
    made = re.compile(r"Made by Almanac at .*? last pull|Bytes.*|Size of the file.*")
    assert made.sub("", Page(whole).text) == made.sub("", Page(published_then).text)


def test_change_that_is_dated_before_the_last_report_is_in_the_next(tmp_path: Path) -> None:
    story = HandmadeHome(tmp_path)

    def report() -> list[str]:
        with (
            open_database(story.home.warehouse, clock=lambda: NOW) as database,
            next_report(story.home, database.reader, "mine", NOW) as request,
        ):
            after, through = request.places or (0, 99)
            found = database.sql(
                "SELECT event_id FROM event_versions WHERE published_seq > $after "
                "AND published_seq <= $through ORDER BY published_seq",
                after=after,
                through=through,
            )
        return [row["event_id"] for row in found.rows()]

    story.listed("10 06:00", event("a"), event("b"))
    story.merge()
    assert report() == ["a", "b"]
    story.deliveries(("09 06:00", "2026-03-09T06:00:00Z", event("late")))
    story.merge()
    assert [report(), report()] == [["late"], ["late"]]
    story.listed("11 06:00", event("c"), why_incomplete="cut")
    story.merge()
    assert report() == ["c"]


def test_filters_select_coming_events_and_changes(home: ReportedHome) -> None:
    text = home.report(coins=("slug:bitcoin",), categories=("token unlock",), min_impact=5.0)
    assert "Event soon" in text
    assert not [name for name in ("timed", "dropped") if f"Event {name}" in text]
    with pytest.raises(AlmanacError):
        home.report(since=PULLS[3], until=PULLS[2])


WRONG: Final = (
    (("--since", "soon"), 2, "--since='soon' is not a timestamp"),
    (("--as-of", "2999-01-01"), 2, "2999"),
    (("--as-of", "2020-01-01"), 1, "before the first pull of events"),
    (("--as-of", "2026-03-10", "--since-last"), 2, "can't be used with --since or --as-of"),
    (("--min-impact", "11"), 2, "expected a score from 0 to 10"),
    (("--output", "missing/report.html"), 1, "missing: No such file or directory"),
)


@pytest.fixture
def reported(tmp_path: Path) -> ReportedHome:
    return make_reported_home(tmp_path / "data")


def test_reports_of_the_same_filters_follow_each_other(
    reported: ReportedHome, almanac: Almanac
) -> None:
    done = almanac("report")
    (file,) = reported.small.home.root.parent.glob("report-*.html")
    assert done.stdout.startswith(f"Wrote {file.name} (")
    assert file.read_text().startswith("<!doctype html>")
    assert read_marks(reported.small.home) == {}
    reported.publish(days=19)
    said = {almanac("report", "--since-last").stdout for _ in range(2)}
    assert len(said) == 1, "without a new pull, the same period"
    assert "changes from 2026-03-09 11:00 to 2026-03-16 11:00 UTC." in said.pop()
    reported.publish()
    after = almanac("report", "--since-last").stdout
    assert "changes from 2026-03-16 11:00 to 2026-03-18 11:00 UTC." in after
    almanac("report", "--since-last", "--coins", "BTC/USDT", "--min-impact", "high")
    almanac("report", "--since-last", "--coins", "bitcoin", "--min-impact", "5")
    assert len(read_marks(reported.small.home)) == 2


def test_wrong_arguments_are_one_line_and_change_nothing(
    reported: ReportedHome, almanac: Almanac
) -> None:
    for words, code, text in WRONG:
        done = almanac("report", *words, code=code)
        assert text in done.stderr
        assert done.stderr.count("\n") == 1
    assert read_marks(reported.small.home) == {}
