"""The command `almanac`."""

import typer

from pipeline import batches_cli, endpoints_cli, keys_cli
from pipeline.backfill_cli import backfill
from pipeline.budget_cli import budget
from pipeline.command_group import PlainGroup
from pipeline.doctor_cli import doctor
from pipeline.interrupts import interrupt_by_signals
from pipeline.leaving import leave
from pipeline.merge_cli import import_file, merge, replay
from pipeline.prune_cli import prune
from pipeline.run_cli import run
from pipeline.sandbox_cli import sandbox
from pipeline.secrecy import begin_private
from pipeline.sql_cli import sql
from pipeline.status_cli import status
from pipeline.ui_cli import ui
from pipeline.verify_cli import verify

app = typer.Typer(
    name="almanac",
    cls=PlainGroup,
    help="A warehouse of dated crypto-market events, and a server of the same interface.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold a key
)
app.command()(run)
app.command()(budget)
app.command()(backfill)
app.command()(sql)
app.command()(status)
app.command()(merge)
app.command()(replay)
app.command(name="import")(import_file)
app.add_typer(batches_cli.app, name="batches")
app.command()(verify)
app.command()(doctor)
app.command()(prune)
app.command()(ui)
app.command()(sandbox)
app.add_typer(keys_cli.app, name="keys")
app.add_typer(endpoints_cli.app, name="endpoints")


def main() -> None:
    begin_private()
    interrupt_by_signals()
    try:
        app()
    except SystemExit as ended:
        leave(ended.code)
        raise


if __name__ == "__main__":
    main()
