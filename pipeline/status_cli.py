"""`almanac status`: how fresh the warehouse is, what waits, and what is wrong."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from pipeline.alert_post import AlertNotPosted, post_changes
from pipeline.alerts import Changes
from pipeline.console import EXIT_ERROR, fail, people, print_json
from pipeline.health import health_of, sizes_of
from pipeline.options import JsonOption
from pipeline.settings import Settings, SettingsError, read_settings
from pipeline.status_table import show
from warehouse.home import Home


def status(
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 when there is a warning.")
    ] = False,
    alert: Annotated[
        bool,
        typer.Option("--alert", help="Post what is new to ALMANAC_ALERT_URL, as the daemon does."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show freshness by feed, what waits or is missing, disk and quota. No request is made."""
    now, settings = datetime.now(UTC), read_settings()
    if alert and not settings.alerts:
        raise SettingsError("--alert needs ALMANAC_ALERT_URL, which is not set.")
    home = Home(settings.home)
    # First, since it is told also where the home can't be read.
    told, not_posted = _alerted(settings, home, now) if alert else (None, "")
    health = health_of(settings, home, now)
    if health.source is not None:
        health.bytes = sizes_of(home)
    if as_json:
        print_json({**asdict(health), **({} if told is None else {"told": told.kinds})})
    elif health.source is None:
        people.print(f"There is no home at {home.root} yet: almanac run", soft_wrap=True)
    else:
        show(home, health)
        if told:
            people.print(f"Posted: {' '.join(told.kinds)}", soft_wrap=True)
    if not_posted:
        fail(not_posted)
    if exit_code and (health.warnings or health.source is None):
        raise typer.Exit(EXIT_ERROR)


def _alerted(settings: Settings, home: Home, now: datetime) -> tuple[Changes, str]:
    """Return what was posted, and why it was not."""
    try:
        return post_changes(settings, home, now), ""
    except AlertNotPosted as error:
        return Changes(), str(error)
