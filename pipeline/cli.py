"""The command `almanac`."""

import typer

from pipeline import endpoints_cli, keys_cli
from pipeline.sandbox_cli import sandbox

app = typer.Typer(
    name="almanac",
    help="A warehouse of dated crypto-market events, and a server of the same interface.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold a key
)
app.command()(sandbox)
app.add_typer(keys_cli.app, name="keys")
app.add_typer(endpoints_cli.app, name="endpoints")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
