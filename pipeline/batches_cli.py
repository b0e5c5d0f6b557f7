"""`almanac batches`: what was landed, and what became of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from pipeline.console import Column, Table, people, print_json
from pipeline.homes import home_there
from pipeline.options import JsonOption
from warehouse.batches import feed_of
from warehouse.change_log import ChangeLog
from warehouse.errors import DamagedBatch
from warehouse.home import Home

app = typer.Typer(help="List, show and release landed batches.", no_args_is_help=True)


@app.command(name="list")
def list_batches(
    days: Annotated[int, typer.Option(min=1, help="Of the last days that have any.")] = 7,
    status: Annotated[
        str | None, typer.Option(help="Only pending, merged, quarantined or damaged ones.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List batches, the newest first."""
    rows = _rows(home_there(), days)
    if status is not None:
        rows = [row for row in rows if row["status"] == status]
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
    people.print(table if rows else "No batches. `almanac run` lands some.")


@app.command()
def show(batch_id: Annotated[str, typer.Argument()], as_json: JsonOption = False) -> None:
    """Show all that is known of one batch."""
    home = home_there()
    manifest = home.landing.manifest(batch_id)
    record: dict[str, Any] = msgspec.to_builtins(manifest)
    outcome = _outcomes(home).get(batch_id)
    pages = record.pop("pages")
    record["pages"] = len(pages)
    record["outcome"] = outcome or {"status": "pending"}
    record["body"] = str(home.landing.body_path(manifest))
    if as_json:
        print_json(record)
        return
    for name, value in _lines(record):
        people.print(f"{name:<24} {value}", soft_wrap=True)


@app.command()
def release(batch_id: Annotated[str, typer.Argument()]) -> None:
    """Trust a batch that was quarantined or flagged: the next merge folds it in."""
    home_there().landing.release(batch_id)
    people.print(f"{batch_id} is released. Next: almanac merge", soft_wrap=True)


def _lines(record: dict[str, Any], under: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and value of all that is known, the inner names after the outer."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _lines(value, f"{under}{name}.")
        elif isinstance(value, list | tuple):
            yield under + name, ", ".join(map(str, value)) or "-"
        else:
            yield under + name, "-" if value in (None, "", {}) else str(value)


def _outcomes(home: Home) -> dict[str, dict[str, Any]]:
    log = ChangeLog(home.lake, home.state / "change_log.json")
    return {batch_id: one for day in log.days() for batch_id, one in day.batches().items()}


def _rows(home: Home, days: int) -> list[dict[str, Any]]:
    landing = home.landing
    log = ChangeLog(home.lake, home.state / "change_log.json")
    folded = {day.day: day for day in log.days()}
    rows = [_damaged_row(*one) for one in sorted(landing.damaged().items(), reverse=True)]
    for day in sorted(landing.days(), reverse=True)[:days]:
        outcomes = folded[day].batches() if day in folded else {}
        for batch_id in reversed(landing.batch_ids(day=day)):
            try:
                manifest = landing.manifest(batch_id)
            except DamagedBatch as error:
                rows.append(_damaged_row(batch_id, str(error)))
                continue
            outcome = outcomes.get(batch_id, {})
            rows.append(
                {
                    "batch_id": batch_id,
                    "feed": manifest.feed,
                    "status": outcome.get("status", "pending"),
                    "observed_at": manifest.observed_at,
                    "content_at": manifest.content_at,
                    "plan": manifest.plan,
                    "bytes": manifest.bytes,
                    "requests": manifest.requests,
                    "why_incomplete": manifest.why_incomplete,
                    **{
                        name: outcome.get(name)
                        for name in ("arrived", "rejected", "versions", "why", "flagged")
                    },
                }
            )
    return rows


def _damaged_row(batch_id: str, why: str) -> dict[str, Any]:
    """Return a row for a batch of which nothing can be read, or that is set aside for it."""
    names = ("observed_at", "content_at", "plan", "bytes", "requests", "why_incomplete")
    counts = ("arrived", "rejected", "versions", "flagged")
    return {
        "batch_id": batch_id,
        "feed": feed_of(batch_id),
        "status": "damaged",
        **dict.fromkeys((*names, *counts)),
        "why": why,
    }


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
