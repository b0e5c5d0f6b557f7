"""`almanac merge`, `rebuild`, `import` and `batches`: from landed batches to the warehouse."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from almanac.console import (
    EXIT_ERROR,
    EXIT_USAGE,
    Column,
    JsonOption,
    Table,
    fail,
    local_file,
    people,
    show_rows,
    show_steps,
)
from almanac.core.timestamps import utc_now
from application.cli.options import PlanName, dates_option, instant_option
from application.console import print_json, show_problems
from pipeline.home_location import locate_existing_home, locate_home, restore_home
from pipeline.settings import read_columns, read_settings
from resources.request_log import read_push_plan
from warehouse.batch_problems import has_failed
from warehouse.errors import DamagedBatch
from warehouse.history import merge as merging
from warehouse.history.merge import MergeReport
from warehouse.history.warehouse_file import read_records
from warehouse.home import Home
from warehouse.landing.batches import Manifest, parse_feed
from warehouse.landing.imports import ArchivedExport, import_export
from warehouse.landing.inbox import Inbox


def merge(as_json: JsonOption = False) -> None:
    """Merge landed batches and publish the warehouse. Sends no request.

    Webhooks that wait in the inbox are landed first. A quarantined batch is reported, with exit
    code 0, and `status --exit-code` exits with 1. A batch that is damaged in landing is left out,
    and the exit code is 1. It is also 1 if a batch that was merged before is quarantined now."""
    home = locate_existing_home()
    with show_steps("Merging"):
        landed = Inbox(home, read_push_plan(home.state)).land(utc_now)
        report = merging.merge(home)
    if landed and not as_json:
        count = sum(len(manifest.pages) for manifest in landed)
        people.print(f"Deliveries landed from the inbox: {count:,}")
    show_report(home, report, as_json=as_json)


def rebuild(as_json: JsonOption = False) -> None:
    """Rebuild the warehouse from landing. Sends no request.

    Damaged files of the warehouse are replaced. A quarantined batch is reported, with
    exit code 0, and `status --exit-code` exits with 1. A batch that is damaged in landing is left
    out, and the exit code is 1. It is also 1 if a batch that was merged before is quarantined now.
    """
    home = locate_existing_home()
    with show_steps("Rebuilding"):
        report = merging.rebuild(home)
    show_report(home, report, as_json=as_json)


def _read_columns(text: str) -> dict[str, str]:
    try:
        return read_columns(text)
    except ValueError as error:
        fail(f"--columns: {error}. Nothing was landed.", code=EXIT_USAGE)


def import_file(
    path: Annotated[
        Path,
        typer.Argument(
            help="A file of the bulk export (CSV, optionally gzipped).",
            callback=local_file,
        ),
    ],
    content_at: Annotated[str, typer.Option(help="When its content was true (UTC).")],
    observed_at: Annotated[
        str | None, typer.Option(help="When you obtained the file (UTC). Defaults to --content-at.")
    ] = None,
    plan: Annotated[PlanName, typer.Option(help="The plan under which it was exported.")] = "elite",
    begin: Annotated[
        str | None, typer.Option("--from", help="First event date for which it has all events.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Last event date for which it has all events.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns with other names and the field of each, such as coin_slug=coins.",
            show_default="ALMANAC_EXPORT_COLUMNS",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Land it also if rows can't be read.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add an archived export to the history, at its own time. Run `almanac merge` afterwards.

    A file that a merge would not read in full is refused, with the reason."""
    if (begin is None) != (end is None):
        fail("--from and --to must be given together", code=EXIT_USAGE)
    covers = None
    if begin is not None:
        first, last = dates_option(begin, end)
        covers = None if last is None else (first, last)
    true_at = instant_option("--content-at", content_at)
    known_at = None if observed_at is None else instant_option("--observed-at", observed_at)
    now, settings = utc_now(), read_settings()
    home = locate_home(settings)
    restore_home(home)
    export = ArchivedExport(
        path=path,
        content_at=true_at,
        observed_at=true_at if known_at is None else known_at,
        plan=plan,
        source=settings.source,
        covers=covers,
        columns=settings.export_columns if columns is None else _read_columns(columns),
    )
    manifest, read, doubt = import_export(home, export, now, force=force)
    # A manifest is never rewritten, so it has the time of the first landing.
    was_landed = manifest.landed_at != now
    if as_json:
        print_json(
            {
                **{"batch_id": manifest.batch_id, "bytes": manifest.bytes, "rows": read.good},
                **{"already_landed": was_landed, "notes": read.notes, "why_forced": doubt},
            }
        )
        return
    if was_landed:
        people.print(
            f"Already landed as {manifest.batch_id}, on {manifest.landed_at:%Y-%m-%d %H:%M} UTC. "
            "Nothing was changed.",
            soft_wrap=True,
        )
        return
    people.print(
        f"Landed as {manifest.batch_id}, {read.good:,} rows, {manifest.bytes:,} bytes.",
        soft_wrap=True,
    )
    for note in (*read.notes, *((doubt,) if doubt else ())):
        people.print(f"Note: {note}", soft_wrap=True)
    people.print("Next: almanac merge")


def show_report(home: Home, report: MergeReport, *, as_json: bool) -> None:
    """Print the report of a merge.

    Raises:
        typer.Exit: a batch is damaged, or is quarantined and was merged before.
    """
    if as_json:
        print_json(report_record(home, report))
    else:
        _show_report(home, report)
    if report.damaged or report.lost:
        raise typer.Exit(EXIT_ERROR)


def _show_report(home: Home, report: MergeReport) -> None:
    if not report.outcomes and not report.damaged:
        people.print(f"Nothing to merge. {home.warehouse} is up to date.", soft_wrap=True)
        return
    table = Table("", "", show_header=False)
    table.add_row("Batches merged", f"{len(report.outcomes):,}")
    table.add_row("Days", f"{len(report.days):,}")
    table.add_row("New versions", f"{report.versions:,}")
    for kind, count in sorted(report.changes.items()):
        table.add_row(f"  {kind}", f"{count:,}")
    table.add_row("Rejected rows", f"{report.rejected:,}")
    table.add_row("Seconds", f"{report.seconds:.1f}")
    table.add_row("Warehouse", str(home.warehouse))
    people.print(table)
    show_problems(report.problems)
    for note in report.notes:
        people.print(f"Note: {note}", soft_wrap=True)
    if report.refolded:
        changed = sum(map(any, report.refolded.values()))
        text = f"{len(report.refolded)} days were refolded; history changed in {changed} of them"
        people.print(f"{text} (--json lists them).")


def report_record(home: Home, report: MergeReport) -> dict[str, Any]:
    """Return the report of a merge as a record for JSON."""
    return {
        "batches": len(report.outcomes),
        "days": [day.isoformat() for day in report.days],
        "versions": report.versions,
        "changes": dict(report.changes),
        "rejected": report.rejected,
        "quarantined": [outcome.manifest.batch_id for outcome in report.quarantined],
        "problems": report.problems,
        "no_more_merged": report.lost,
        "notes": report.notes,
        "refolded": {
            day.isoformat(): {"added": added, "removed": removed}
            for day, (added, removed) in report.refolded.items()
        },
        "seconds": report.seconds,
        "warehouse": str(home.warehouse),
    }


batches_app = typer.Typer(
    help="List, release and dismiss landed batches.", no_args_is_help=True, add_completion=False
)


@batches_app.command(name="list")
def list_batches(
    batch_id: Annotated[
        str | None, typer.Argument(help="Show all fields of this batch instead.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="Show the last days that have batches.")] = 7,
    status: Annotated[
        Literal["pending", "merged", "quarantined", "damaged"] | None,
        typer.Option(help="Only batches with this status."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List batches, the newest first, or show one of them."""
    if batch_id is not None:
        _show_batch(batch_id, as_json=as_json)
        return
    listed = _rows(locate_existing_home(), days)
    rows = [row for row in listed if status in (None, row["status"])]
    if as_json:
        print_json(rows)
        return
    table = Table(Column("Batch", no_wrap=True, min_width=42), "Rows", "New", "Status", "Why")
    for row in rows:
        table.add_row(
            row["batch_id"],
            _number(row["arrived"]),
            _number(row["versions"]),
            row["status"],
            row["why"] or row["flagged"] or row["why_incomplete"] or "",
        )
    if listed and not rows:
        people.print(f"No batch of these days is {status}; {len(listed):,} in all.")
        return
    people.print(table if rows else "No batches. Run `almanac run` to land some.")


def _show_batch(batch_id: str, *, as_json: bool) -> None:
    home = locate_existing_home()
    manifest = home.landing.manifest(batch_id)
    record: dict[str, Any] = msgspec.to_builtins(manifest)
    outcome = _find_outcome(home, batch_id)
    pages = record.pop("pages")
    record["pages"] = len(pages)
    record["outcome"] = outcome or {"status": "pending"}
    record["body"] = str(home.landing.body_path(manifest))
    if as_json:
        print_json(record)
        return
    show_rows(list(record), [list(record.values())], vertical=True)


_Undo = Annotated[bool, typer.Option("--undo", help="Take it back.")]


@batches_app.command()
def release(batch_id: Annotated[str, typer.Argument()], undo: _Undo = False) -> None:
    """Trust a quarantined or flagged batch: the next merge includes it."""
    home = locate_existing_home()
    home.landing.manifest(batch_id)
    if undo:
        if batch_id not in home.landing.released():
            fail(f"{batch_id} is not released. Nothing was changed.")
        home.landing.take_back(batch_id)
        people.print(f"{batch_id} is no longer released. Next: almanac merge", soft_wrap=True)
        return
    outcome = _find_outcome(home, batch_id)
    if outcome.get("status") == "quarantined" and has_failed(batch_id, outcome["why"] or ""):
        fail(
            f"{batch_id}: {outcome['why']}. A release would read it again, and fail again. Nothing "
            "was released. With a version that can read it: almanac rebuild"
        )
    home.landing.release(batch_id)
    people.print(f"{batch_id} released. Next: almanac merge", soft_wrap=True)


@batches_app.command()
def dismiss(batch_id: Annotated[str, typer.Argument()], undo: _Undo = False) -> None:
    """Leave a quarantined batch out permanently; `status` no longer warns of it."""
    home = locate_existing_home()
    home.landing.manifest(batch_id)
    outcome = _find_outcome(home, batch_id)
    if not undo and outcome.get("status") != "quarantined":
        fail(f"{batch_id} is not quarantined, so there is nothing to accept. Nothing was changed.")
    home.landing.dismiss(batch_id, undo=undo)
    people.print(f"{batch_id} is {'warned of again' if undo else 'dismissed'}.", soft_wrap=True)


def _find_outcome(home: Home, batch_id: str) -> dict[str, Any]:
    day = home.landing.manifest(batch_id).observed_at.date()
    return read_records(home.warehouse, since=day, until=day).get(batch_id, {})


def _rows(home: Home, days: int) -> list[dict[str, Any]]:
    landing = home.landing
    shown = sorted(landing.days(), reverse=True)[:days]
    outcomes = read_records(home.warehouse, since=min(shown)) if shown else {}
    aside = sorted(landing.damaged().items(), reverse=True)
    rows = [_row(batch_id, None, {"status": "damaged", "why": why}) for batch_id, why in aside]
    for day in shown:
        for batch_id in reversed(landing.batch_ids(day=day)):
            try:
                rows.append(_row(batch_id, landing.manifest(batch_id), outcomes.get(batch_id, {})))
            except DamagedBatch as error:
                rows.append(_row(batch_id, None, {"status": "damaged", "why": str(error)}))
    return rows


def _row(batch_id: str, manifest: Manifest | None, outcome: Mapping[str, Any]) -> dict[str, Any]:
    names = ("observed_at", "content_at", "plan", "bytes", "requests", "why_incomplete")
    return {
        "batch_id": batch_id,
        "feed": parse_feed(batch_id),
        "status": outcome.get("status", "pending"),
        **{name: getattr(manifest, name, None) for name in names},
        **{name: outcome.get(name) for name in ("arrived", "rejected", "versions")},
        **{name: outcome.get(name) for name in ("why", "flagged")},
    }


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
