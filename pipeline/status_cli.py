"""`almanac status`: how fresh the warehouse is, what waits, and what is wrong."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.table import Table

from pipeline.console import EXIT_ERROR, people, print_json, quota_left
from pipeline.health import Health, health_of
from pipeline.options import JsonOption
from pipeline.settings import read_settings
from warehouse.home import Home


def status(
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 when there is a warning.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show freshness by feed, what waits, disk and quota. No request is made."""
    now = datetime.now(UTC)
    home = Home(read_settings().home)
    health = health_of(home, now)
    if as_json:
        print_json(asdict(health))
    elif health.source is None:
        people.print(f"There is no home at {home.root} yet: almanac run", soft_wrap=True)
    else:
        _show(home, health, now)
    if exit_code and (health.warnings or health.source is None):
        raise typer.Exit(EXIT_ERROR)


def _show(home: Home, health: Health, now: datetime) -> None:
    people.print(f"{home.root}, from {health.source}", soft_wrap=True)
    feeds = Table("Feed", "Last look (UTC)", "Age", "Last complete (UTC)", "Batches")
    for one in health.feeds:
        age = "-" if one.observed_at is None else _age(now - one.observed_at)
        feeds.add_row(
            one.feed, _when(one.observed_at), age, _when(one.complete_at), f"{one.batches:,}"
        )
    people.print(feeds)
    facts = Table("", "", show_header=False)
    facts.add_row("Published (UTC)", _when(health.published_at))
    facts.add_row("Waiting to be merged", f"{health.pending:,}")
    facts.add_row("Quarantined, flagged", f"{len(health.quarantined)}, {len(health.flagged)}")
    facts.add_row("Rejected rows", f"{health.rejected:,}")
    for part, size in health.bytes.items():
        facts.add_row(part, f"{size / 1e6:,.1f} MB")
    if health.quota is not None:
        facts.add_row("Quota left", _quota(health.quota))
    people.print(facts)
    for warning in health.warnings:
        people.print(f"! {warning}", soft_wrap=True, markup=False)


def _quota(told: dict[str, object]) -> str:
    """Return what was left when the service was last asked; others may have spent since."""
    left = quota_left(
        told.get("remaining"), told.get("quota"), is_unlimited=bool(told.get("is_unlimited"))
    )
    return f"{left}, as of {_when(datetime.fromisoformat(str(told['at'])))} UTC"


def _when(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%Y-%m-%d %H:%M}"


def _age(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"
