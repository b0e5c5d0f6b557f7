"""Writes a report to a file, and remembers the end of its period.

    state/reports.json    {selection: ReportMark}, the end of the last report by its filters

The mark moves after the file is in its place, under a lock: a report that fails moves nothing, and
two reports at the same time follow each other.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from almanac.reader import Reader
from pipeline.report.document import ReportSection
from pipeline.report.formats import file_stamp, make_html, make_markdown
from pipeline.report.plots import Plot
from pipeline.report.report_facts import ReportFacts, ReportMark, ReportRequest, collect_facts
from pipeline.report.sections import make_sections
from pipeline.settings import Settings
from warehouse.files.documents import put_note, read_note
from warehouse.files.locks import hold_lock
from warehouse.files.storage import Storage
from warehouse.home import Home

ReportFormat = Literal["html", "md"]
DAILY: Final = "daily"
"""The selection of the asset `daily_report`, which no report of the command moves."""
_NOTE: Final = "reports.json"
_MARKS_MAX: Final = 100
_LOCK_WAIT_S: Final = 60.0
_DAILY_FILE: Final = re.compile(r"almanac-report-\d{8}T\d{6}Z\.html")


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report: its facts, its text, and its plots."""

    facts: ReportFacts
    text: str
    plots: Sequence[Plot]

    @property
    def size(self) -> int:
        return len(self.text.encode())


def read_marks(home: Home) -> dict[str, ReportMark]:
    """Return the ends of the last reports; an unreadable record counts as none."""
    return read_note(home.state_storage, _NOTE, dict[str, ReportMark]) or {}


def write_report(
    settings: Settings,
    home: Home,
    request: ReportRequest,
    now: datetime,
    put: Callable[[WrittenReport], None],
    *,
    form: ReportFormat = "html",
    plots_folder: str | None = None,
    selection: str | None = None,
    moves_mark: bool = True,
) -> WrittenReport:
    """Make a report and give it to `put`, then record its end if `moves_mark`.

    `plots_folder` is how Markdown names the folder of the plots, None for a report without plots;
    HTML contains them.

    Raises:
        LockHeld: another report of this home takes too long.
        AlmanacError, WarehouseError: the facts can't be read; see `collect_facts`.
    """
    key = selection or request.selection
    with hold_lock(home.state / "report.lock", "to write a report", wait_s=_LOCK_WAIT_S):
        marks = read_marks(home)
        last = marks.get(key) if request.as_of is None else None
        reader = Reader(home.warehouse, clock=lambda: now)
        try:
            facts = collect_facts(settings, home, reader, request, last, now)
        finally:
            reader.close()
        written = _format(facts, form, plots_folder)
        put(written)
        if moves_mark:
            since, until = facts.digest.since, facts.digest.until
            if last is not None and since == until:
                since = last.since or since  # Nothing was pulled: the last period stays known.
            until = until if last is None else max(last.until, until)
            kept = sorted(
                ((name, mark) for name, mark in marks.items() if name != key),
                key=lambda item: item[1].at,
            )[1 - _MARKS_MAX :]
            mark = ReportMark(until=until, at=now, since=since)
            put_note(home.state_storage, _NOTE, dict([*kept, (key, mark)]))
    return written


def _format(facts: ReportFacts, form: ReportFormat, plots_folder: str | None) -> WrittenReport:
    with_plots = form == "html" or plots_folder is not None
    sections: list[ReportSection] = make_sections(facts, with_plots=with_plots)
    plots = [part for section in sections for part in section.parts if isinstance(part, Plot)]
    if form == "html":
        return WrittenReport(facts, make_html(facts, sections), plots)
    return WrittenReport(facts, make_markdown(facts, sections, plots_folder or ""), plots)


def put_file(path: Path, text: str) -> None:
    """Write or replace a file; on an error it is unchanged.

    Raises:
        OSError: the folder does not exist, or can't be written to.
    """
    # Without this check the folder would be made, also for a misspelt name.
    path.parent.stat()
    Storage(path.parent).put(path.name, text.encode())


def write_daily_report(
    settings: Settings, home: Home, folder: Path, now: datetime, *, keep: int
) -> tuple[Path, WrittenReport]:
    """Write the report of the asset `daily_report`, and delete all but the newest `keep`."""
    path = folder / f"almanac-report-{file_stamp(now)}.html"
    folder.mkdir(parents=True, exist_ok=True)
    written = write_report(
        settings,
        home,
        ReportRequest(),
        now,
        lambda report: put_file(path, report.text),
        selection=DAILY,
    )
    for old in list_daily_reports(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path, written


def list_daily_reports(folder: Path) -> list[Path]:
    """Return the reports of the asset in a folder, oldest first; no other file."""
    return sorted(path for path in folder.iterdir() if _DAILY_FILE.fullmatch(path.name))
