"""A report as HTML and Markdown: hostile texts, estimated dates, plots, secrets, one file."""

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.report.plots import HOW_TO_GET_PLOTS, Plot, plot_bars, plot_columns
from pipeline.report.report_file import WrittenReport
from tests.pipeline.report.reported_home import (
    NOW,
    VERSIONS,
    ReportedHome,
    known,
    make_reported_home,
)
from tests.pipeline.small_home import DAY

CANARY = "canary-6f21"
SVG_MAX = 20_000
HOSTILE = (
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "]]> --> */ </style></title>",
    "[a](javascript:alert(1)) ![b](https://evil.example/x.png)",
    "a | b | c `code` **bold** <b>x</b> @everyone https://evil.example",
    "\x1b[31mred\x00\x07\u202egnp.exe\u2028line\r\n# heading",
    "שלום עולם, اختبار العناوين",
    "x" * 20_000,
    "{{ 7 * 7 }} {% raw %} $(id) %s",
)
ALLOWED_ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "nav", "section", "footer"),
    *("h1", "h2", "p", "dl", "dt", "dd", "ul", "li", "div", "a", "bdi", "code"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"),
    *("svg", "g", "path", "line", "text", "rect"),
}


class Page(HTMLParser):
    """The elements, links and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.identifiers: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.identifiers += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> ReportedHome:
    """Return a home with hostile titles, coins and categories, and secrets in its settings."""
    folder = tmp_path_factory.mktemp("machine-folder")
    made = make_reported_home(
        folder / "home",
        base_url="https://api.example.com",
        api_key=SecretStr(f"{CANARY}-key"),
        alert_url=SecretStr(f"https://hooks.example.com/{CANARY}"),
        digest_url=SecretStr(f"https://hooks.example.com/{CANARY}-digest"),
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
    return made


@pytest.fixture(scope="module")
def html(hostile: ReportedHome) -> WrittenReport:
    return hostile.report(form="html", moves_mark=False)


@pytest.fixture(scope="module")
def markdown(hostile: ReportedHome) -> WrittenReport:
    return hostile.report(moves_mark=False)


def test_hostile_texts_make_no_element_of_the_page(html: WrittenReport) -> None:
    page = Page(html.text)
    assert page.elements <= ALLOWED_ELEMENTS
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert not value.lower().strip().startswith("javascript:")
    assert "<script>alert(1)</script>" in page.text
    assert "</td></table><img src=x onerror=alert(1)>" in page.text
    assert "שלום עולם, اختبار العناوين" in page.text
    assert "{{ 7 * 7 }} {% raw %} $(id) %s" in page.text


def test_control_characters_are_escapes(html: WrittenReport, markdown: WrittenReport) -> None:
    for text in (html.text, markdown.text):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2028\u2029]", text)
        assert "\\u202egnp.exe" in text.replace("\\\\", "\\")


def test_long_title_is_cut(html: WrittenReport, markdown: WrittenReport) -> None:
    assert "x" * 150 in html.text
    for text in (html.text, markdown.text):
        assert "x" * 300 not in text


def test_page_loads_nothing_and_runs_nothing(html: WrittenReport) -> None:
    page = Page(html.text)
    loading = {"src", "srcset", "data", "action", "poster", "background", "xlink:href"}
    assert not loading & {name for name, _ in page.attributes}
    links = [value for name, value in page.attributes if name == "href"]
    assert links
    assert all(re.match(r"#\w+\Z|https://", link) for link in links)
    assert "@import" not in html.text
    assert set(re.findall(r"url\((.)", html.text)) <= {"#"}
    assert "default-src 'none'" in html.text


def test_identifiers_are_unique_and_sections_have_headings(html: WrittenReport) -> None:
    page = Page(html.text)
    assert len(page.identifiers) == len(set(page.identifiers))
    assert html.text.count("<section") == html.text.count("</h2>") == 8
    assert html.text.count("<table") == html.text.count("<caption>")
    assert '<html lang="en">' in html.text


def test_hostile_texts_make_no_markup_in_markdown(markdown: WrittenReport) -> None:
    text = markdown.text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    links = re.findall(r"(?<!\\)\]\(<([^>]*)>\)", text)
    assert all(link.startswith("https://") for link in links)
    assert not re.search(r"(?<!\\)!\[", text)
    assert not re.search(r"(?<!\\)<(?!https://)", text)
    assert not re.search(r"(?<![\\(<])https?://(?!example\.com)", text.replace(r"\://", ""))
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1
    tables: list[set[int]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        tables.append({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()})
    assert rows
    assert all(len(widths) == 1 for widths in tables)


@pytest.mark.parametrize("form", ["html", "md"])
def test_report_has_no_secret_and_no_folder_of_the_machine(
    hostile: ReportedHome, form: str, html: WrittenReport, markdown: WrittenReport
) -> None:
    text = {"html": html, "md": markdown}[form].text
    assert CANARY not in text
    assert "machine-folder" not in text
    assert str(Path.home()) not in text
    assert str(hostile.file.parent) not in text


def test_estimated_event_is_never_shown_with_an_exact_date(tmp_path: Path) -> None:
    made = make_reported_home(tmp_path / "home")
    written = made.report()
    (row,) = (line for line in written.text.splitlines() if "Event quarter" in line)
    assert row.startswith("| Q1 2026 |")
    assert "31 March" not in written.text
    assert "2026-03-31" not in written.text


def test_each_plot_is_small_and_has_an_alternative_text(html: WrittenReport) -> None:
    assert [plot.name for plot in html.plots] == ["weeks", "categories", "leads"]
    for plot in html.plots:
        assert len(plot.svg.encode()) <= SVG_MAX
        assert 'role="img"' in plot.svg
        assert "aria-label=" in plot.svg
        assert "currentColor" not in plot.as_file()
        assert "http" not in plot.svg.replace("http://www.w3.org/", "")


def test_plot_of_the_most_data_is_small() -> None:
    weeks = [
        (f"week {n}", name, float(n * 1_000))
        for n in range(12)
        for name in ("slipped", "pulled in", "cancelled")
    ]
    shares = [("m" * 60 + str(n), name, n / 8) for n in range(8) for name in ("moved", "cancelled")]
    drawn: list[Plot] = [
        plot_columns("a", "title", "alt", weeks, "events"),
        plot_bars("b", "title", "alt", shares, "share"),
    ]
    assert max(len(plot.svg.encode()) for plot in drawn) <= SVG_MAX


def test_without_the_extra_the_report_has_tables_and_says_how_to_get_plots(
    hostile: ReportedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    written = hostile.report(form="html", moves_mark=False)
    assert written.plots == []
    assert "<svg" not in written.text
    assert HOW_TO_GET_PLOTS in Page(written.text).text
    assert "Moves and cancellations by week" in written.text


def test_warehouse_with_a_pull_and_no_event_has_a_report(tmp_path: Path) -> None:
    made = make_reported_home(tmp_path / "home")
    made.publish([replace(VERSIONS[0], known_from=datetime(2026, 12, 1, tzinfo=UTC))])
    written = made.report(form="html")
    assert "No event is known." in written.text
    assert "Nothing changed." in written.text
