"""`almanac keys`: the keys that a server of ours accepts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from catalog.contract.plans import PLANS
from catalog.server.grants import StoredKey
from catalog.server.json_file import JsonFileError
from catalog.server.key_book import KeyBook, KeyBookError
from catalog.server.service_dir import ServiceDir, ServiceDirError
from pipeline.console import Table, fail, people, print_json, told_plainly
from pipeline.settings import read_settings

app = typer.Typer(help="Create, list, revoke and rotate keys of the server.", no_args_is_help=True)

DirOption = Annotated[
    Path | None, typer.Option("--dir", help="The server's folder; else under ALMANAC_HOME.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def _book(folder: Path | None) -> KeyBook:
    return ServiceDir(folder or read_settings().service_dir).key_book()


@app.command()
def create(
    account: Annotated[str, typer.Argument(help="The account; made when it is new.")],
    plan: Annotated[str, typer.Option(help="free, standard, pro, elite or enterprise.")],
    rate: Annotated[float | None, typer.Option(help="Requests a second; Enterprise only.")] = None,
    burst: Annotated[int | None, typer.Option(help="Burst; Enterprise only.")] = None,
    quota: Annotated[int | None, typer.Option(help="Requests a month; Enterprise only.")] = None,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and show it, this once."""
    if plan not in PLANS:
        fail(f"there is no plan {plan!r}; the plans are {', '.join(PLANS)}")
    with told_plainly(KeyBookError, JsonFileError, ServiceDirError):
        key, stored = _book(folder).create(
            account, PLANS[plan], rate_per_s=rate, burst=burst, monthly_quota=quota
        )
    _show_new(key, stored, as_json=as_json)


@app.command(name="list")
def list_keys(folder: DirOption = None, as_json: JsonOption = False) -> None:
    """List accounts and keys. Only a key's SHA-256 is kept, so no key can be shown again."""
    with told_plainly(KeyBookError, JsonFileError, ServiceDirError):
        accounts = _book(folder).read().accounts
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = [
        {
            "id": key.id,
            "account": account.name,
            "plan": account.plan,
            "created_at": key.created_at,
            "expires_at": key.expires_at,
            "usable": key.usable(now),
        }
        for account in accounts
        for key in account.keys
    ]
    if as_json:
        print_json(rows)
        return
    table = Table("Key", "Account", "Plan", "Created (UTC)", "Ends (UTC)", "Usable")
    for row in rows:
        ends = "-" if row["expires_at"] is None else f"{row['expires_at']:%Y-%m-%d %H:%M}"
        usable = "yes" if row["usable"] else "no"
        table.add_row(
            row["id"],
            row["account"],
            row["plan"],
            f"{row['created_at']:%Y-%m-%d %H:%M}",
            ends,
            usable,
        )
    people.print(table if rows else "No keys yet: almanac keys create NAME --plan elite")


@app.command()
def revoke(key_id: Annotated[str, typer.Argument()], folder: DirOption = None) -> None:
    """Make a key unusable at once."""
    with told_plainly(KeyBookError, JsonFileError, ServiceDirError):
        _book(folder).revoke(key_id)
    people.print(f"{key_id} is revoked.")


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument()],
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=87_600, help="How long the old one works.")
    ] = 24,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create the successor of a key; the old one works on for the overlap."""
    with told_plainly(KeyBookError, JsonFileError, ServiceDirError):
        key, stored = _book(folder).rotate(key_id, overlap=timedelta(hours=overlap_hours))
    _show_new(key, stored, as_json=as_json)


def _show_new(key: str, stored: StoredKey, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": stored.id, "key": key})
        return
    people.print(f"{stored.id}: {key}", soft_wrap=True)
    people.print("Keep it now: only its SHA-256 is stored, and it is not shown again.")
