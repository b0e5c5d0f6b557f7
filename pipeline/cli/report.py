"""`almanac report`: upcoming events, changes and the health of the data, as one file."""

from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from almanac.console import (
    EXIT_USAGE,
    JsonOption,
    fail,
    local_file,
    people,
    print_text,
    show_steps,
)
from pipeline.cli.options import instant_option
from pipeline.console import print_json
from pipeline.home_location import locate_existing_home
from pipeline.settings import read_settings
from warehouse.clock import utc_now

if TYPE_CHECKING:
    from pipeline.report.report_file import WrittenReport

LAST: Final = "last"
_STDOUT: Final = Path("-")


class ReportForm(StrEnum):
    """The format of a report."""

    HTML = "html"
    MD = "md"


def report(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file and replace it; `-` is standard output.",
            show_default="report-DATE.html in this folder",
            callback=local_file,
        ),
    ] = None,
    form: Annotated[
        ReportForm | None,
        typer.Option("--format", "-F", help="The format.", show_default="as the file, or html"),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME|last", help="The start of the changes.")
    ] = LAST,
    mark: Annotated[
        bool | None,
        typer.Option(
            "--mark/--no-mark",
            help="Whether the next report begins where this one ends.",
            show_default="only with --since last and without --as-of",
        ),
    ] = None,
    coins: Annotated[
        str | None, typer.Option(help="Slugs, tickers or names, separated by commas.")
    ] = None,
    categories: Annotated[
        str | None, typer.Option(help="Names of categories, separated by commas.")
    ] = None,
    min_impact: Annotated[
        float | None, typer.Option(help="The lowest score of coming events and changes, 0 to 10.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days ahead to show.")] = 14,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Report what was known at this time.", show_default="now"),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            help="Write the plots of a Markdown report to this folder, as SVG.",
            callback=local_file,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report: what is coming, what changed since the last one, and data quality."""
    begin = None if since == LAST else instant_option("--since", since)
    at = None if as_of is None else instant_option("--as-of", as_of)
    if mark and at is not None:
        fail("--mark can't be used with --as-of: a past report has no next one.", code=EXIT_USAGE)
    form = form or _choose_form(output)
    if plots is not None and form is not ReportForm.MD:
        fail("--plots needs --format md: an HTML report contains its plots.", code=EXIT_USAGE)
    settings = read_settings()
    home = locate_existing_home()
    # Imported here, since no other command needs templates and plots.
    from almanac.commands import split_names
    from pipeline.report.formats import make_json
    from pipeline.report.plots import HOW_TO_GET_PLOTS, can_plot
    from pipeline.report.report_facts import ReportRequest
    from pipeline.report.report_file import put_file, write_report

    if plots is not None and not can_plot():
        fail(f"--plots: {HOW_TO_GET_PLOTS} Nothing was written.")
    now = utc_now()
    if as_json and output == _STDOUT:
        fail("--json and --output - both write to standard output; leave one out", code=EXIT_USAGE)
    path = output or Path(f"report-{(at or now).astimezone(UTC):%Y-%m-%d}.{form.value}")
    request = ReportRequest(
        as_of=at,
        since=begin,
        days=days,
        coins=tuple(split_names("--coins", coins) or ()),
        categories=tuple(split_names("--categories", categories) or ()),
        min_impact=min_impact,
    )

    def put(written: "WrittenReport") -> None:
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
            for plot in written.plots:
                put_file(plots / f"{plot.name}.svg", plot.as_file())
        if path == _STDOUT:
            print_text(written.text)
        else:
            put_file(path, written.text)

    with show_steps("Writing the report ..."):
        written = write_report(
            settings,
            home,
            request,
            now,
            put,
            form=form.value,
            plots_folder=None if plots is None else _folder_link(plots, path),
            moves_mark=mark if mark is not None else begin is None and at is None,
        )
    if as_json:
        print_json({"file": str(path), "bytes": written.size, **make_json(written.facts)})
    elif path != _STDOUT:
        _show(path, written)


def _choose_form(output: Path | None) -> ReportForm:
    is_markdown = output is not None and output.suffix.lower() in (".md", ".markdown")
    return ReportForm.MD if is_markdown else ReportForm.HTML


def _folder_link(folder: Path, report_path: Path) -> str:
    """Return how a report names the folder of its plots: relative, if it is below the report."""
    beside = Path.cwd() if report_path == _STDOUT else report_path.absolute().parent
    try:
        relative = folder.absolute().relative_to(beside).as_posix()
    except ValueError:
        fail(
            f"--plots {folder}: expected a folder beside or below the report, so that the report "
            "names no folder of this machine. Nothing was written.",
            code=EXIT_USAGE,
        )
    return "" if relative == "." else f"{relative}/"


def _show(path: Path, written: "WrittenReport") -> None:
    from pipeline.report.plots import HOW_TO_GET_PLOTS, can_plot

    digest = written.facts.digest
    people.print(
        f"Wrote {path} ({written.size / 1000:,.0f} kB): changes from "
        f"{digest.since:%Y-%m-%d %H:%M} to {digest.until:%Y-%m-%d %H:%M} UTC.",
        soft_wrap=True,
    )
    if not can_plot():
        people.print(HOW_TO_GET_PLOTS, soft_wrap=True)
