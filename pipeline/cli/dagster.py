"""`almanac dagster`: the home and the Dagster instance in use.

Exit codes: 0, also if there was nothing to record; 1 if home or instance can't be used.
"""

from collections import Counter
from typing import Annotated

import typer

from pipeline.cli.options import JsonOption
from pipeline.console import Table, people, print_json
from pipeline.home_location import locate_existing_home
from pipeline.settings import read_settings
from warehouse.clock import utc_now

dagster_app = typer.Typer(no_args_is_help=True)


@dagster_app.callback()
def dagster() -> None:
    """Record in a Dagster instance that is new what the home holds already."""


@dagster_app.command()
def report(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be recorded.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record in an instance that is new what is landed, merged and published. Sends no request.

    What the instance has recorded already is left out: a second report records nothing.
    """
    settings, home = read_settings(), locate_existing_home()
    # Imported here, since importing Dagster takes longer than most commands.
    from assets.report import unrecorded
    from pipeline.build import layout_of
    from pipeline.instance import instance_of

    recorded: Counter[str] = Counter()
    layout = layout_of(settings, home, utc_now())
    # Two reports at once, or a run beside it, would record the same twice.
    with home.run_lock(), instance_of(home) as instance:
        for event in unrecorded(layout, home, instance):
            if not dry_run:
                instance.report_runless_asset_event(event)
            recorded[event.asset_key.to_user_string()] += 1
        folder = instance.root_directory
    if as_json:
        print_json({"instance": folder, "recorded": dict(recorded)})
        return
    people.print(f"Instance: {folder}", soft_wrap=True)
    if not recorded:
        people.print("Nothing to record: it has all of the home.")
        return
    table = Table("Asset", "To record" if dry_run else "Recorded")
    for asset, count in recorded.items():
        table.add_row(asset, f"{count:,}")
    people.print(table)
