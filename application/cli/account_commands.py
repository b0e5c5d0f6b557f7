"""`almanac accounts keys` and `endpoints`: the API keys and webhook endpoints of `almanac serve`
and `almanac sandbox`.

The commands work on the files of a server, running or not. They print tables, or JSON with
`--json`; times are UTC. A secret is printed once, when it is created.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from almanac.console import Column, JsonOption, Table, fail, people
from application.cli.options import DirOption
from application.console import fold_cell, print_json
from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import PLANS, Plan
from catalog.server.accounts import KeyBook, StoredKey
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks import endpoints
from catalog.server.webhooks.endpoints import Endpoint
from catalog.server.webhooks.outbox import OutboxDelivery
from pipeline.settings import read_settings
from warehouse.clock import utc_now

accounts_app = typer.Typer(
    help="Manage API keys and webhook endpoints of the sandbox or, with --dir, of a mirror.",
    no_args_is_help=True,
    add_completion=False,
)
keys_app = typer.Typer(no_args_is_help=True)
endpoints_app = typer.Typer(no_args_is_help=True)
accounts_app.add_typer(keys_app, name="keys", help="Create, list, revoke and rotate API keys.")
accounts_app.add_typer(
    endpoints_app,
    name="endpoints",
    help="Manage webhook endpoints, and list or retry their deliveries.",
)


def _service_dir(folder: Path | None) -> ServiceDir:
    return ServiceDir(folder or read_settings().service_dir)


def _key_book(folder: Path | None) -> KeyBook:
    return _service_dir(folder).key_book()


def _is_there(folder: Path | None) -> bool:
    """Whether the folder exists, since listing must not create it."""
    return (folder or read_settings().service_dir).exists()


@keys_app.command()
def create(
    account: Annotated[str, typer.Argument(help="The account; created if it is new.")],
    plan: Annotated[str, typer.Option(help="free, standard, pro, elite or enterprise.")],
    rate: Annotated[float | None, typer.Option(help="Requests a second; Enterprise only.")] = None,
    burst: Annotated[int | None, typer.Option(help="Burst; Enterprise only.")] = None,
    quota: Annotated[int | None, typer.Option(help="Requests a month; Enterprise only.")] = None,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and show it once."""
    if plan not in PLANS:
        fail(f"there is no plan {plan!r}; the plans are {', '.join(PLANS)}")
    key, stored = _key_book(folder).create(
        account, PLANS[plan], rate_per_s=rate, burst=burst, monthly_quota=quota
    )
    _show_new(key, stored, as_json=as_json)


@keys_app.command(name="list")
def list_keys(folder: DirOption = None, as_json: JsonOption = False) -> None:
    """List accounts and keys. Only the SHA-256 of a key is stored, so keys are not shown again."""
    accounts = _key_book(folder).read().accounts if _is_there(folder) else ()
    now = utc_now()
    rows: list[dict[str, Any]] = [
        {
            "id": key.id,
            "account": account.name,
            "plan": account.plan,
            "created_at": key.created_at,
            "expires_at": key.expires_at,
            "usable": key.is_usable(now),
        }
        for account in accounts
        for key in account.keys
    ]
    if as_json:
        print_json(rows)
        return
    id_column = Column("Key", no_wrap=True)
    table = Table(id_column, "Account", "Plan", "Created (UTC)", "Ends (UTC)", "Usable")
    for row in rows:
        ends = "-" if row["expires_at"] is None else f"{row['expires_at']:%Y-%m-%d %H:%M}"
        names = (row["id"], row["account"], row["plan"], f"{row['created_at']:%Y-%m-%d %H:%M}")
        table.add_row(*names, ends, "yes" if row["usable"] else "no")
    people.print(table if rows else "No keys yet: almanac accounts keys create NAME --plan elite")


@keys_app.command()
def revoke(key_id: Annotated[str, typer.Argument()], folder: DirOption = None) -> None:
    """Make a key unusable immediately."""
    _key_book(folder).revoke(key_id)
    people.print(f"{key_id} revoked")


@keys_app.command()
def rotate(
    key_id: Annotated[str, typer.Argument()],
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=87_600, help="Hours for which the old key stays valid.")
    ] = 24,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a key by a new one; the old key stays valid for the overlap."""
    key, stored = _key_book(folder).rotate(key_id, overlap=timedelta(hours=overlap_hours))
    _show_new(key, stored, as_json=as_json)


def _show_new(key: str, stored: StoredKey, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": stored.id, "key": key})
        return
    people.print(f"{stored.id}: {key}", soft_wrap=True)
    people.print("Store it now: only its SHA-256 is kept, and it is not shown again.")


IdArgument = Annotated[str, typer.Argument(help="The endpoint's id.")]


@endpoints_app.command("add")
def add_endpoint(
    url: Annotated[str, typer.Argument(help="The URL to which deliveries are posted.")],
    account: Annotated[
        str,
        typer.Option(help="The account that owns the endpoint; its plan must be elite or above."),
    ],
    allow_private: Annotated[
        bool,
        typer.Option("--allow-private", help="Allow an address on this host or a private network."),
    ] = False,
    signature: Annotated[
        SignatureForm, typer.Option(help="The form of the signature.")
    ] = SIGNATURE_FORMS[0],
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add an endpoint and print its signing secret once."""
    book = _service_dir(directory).endpoint_book()
    endpoint, secret = book.add(
        url, account=account, allow_private=allow_private, signature=signature
    )
    _show_secret(endpoint.id, secret, as_json=as_json)


@endpoints_app.command("list")
def list_endpoints(directory: DirOption = None, as_json: JsonOption = False) -> None:
    """List the endpoints."""
    folder = _service_dir(directory) if _is_there(directory) else None
    book = folder and folder.endpoint_book()
    plans = {} if folder is None else folder.key_book().plans()
    found = [(each, book.why_no_push(each.id)) for each in book.endpoints()] if book else []
    if as_json:
        print_json([_endpoint_fields(*each, plans) for each in found])
        return
    if not found:
        people.print("No endpoints yet: almanac accounts endpoints add URL --account NAME")
        return
    table = Table(Column("id", no_wrap=True), "account", "url", "signature", "state")
    for endpoint, no_push in found:
        state = no_push or "enabled"
        if endpoint.allow_private:
            state += ", private allowed"
        cells = (endpoint.id, endpoint.account, endpoint.url, endpoint.signature, state)
        table.add_row(*map(fold_cell, cells))
    people.print(table)


@endpoints_app.command("remove")
def remove_endpoint(endpoint_id: IdArgument, directory: DirOption = None) -> None:
    """Remove an endpoint; its pending deliveries become dead."""
    _service_dir(directory).endpoint_book().remove(endpoint_id)
    people.print(f"{endpoint_id} removed", soft_wrap=True)


@endpoints_app.command("rotate")
def rotate_secret(
    endpoint_id: IdArgument,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=8_760, help="Hours for which the old secret signs as well.")
    ] = endpoints.OVERLAP_HOURS,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an endpoint a new signing secret and print it once."""
    book = _service_dir(directory).endpoint_book()
    secret = book.rotate(endpoint_id, overlap_hours=overlap_hours)
    _show_secret(endpoint_id, secret, as_json=as_json)


@endpoints_app.command("enable")
def enable_endpoint(
    endpoint_id: IdArgument,
    off: Annotated[
        bool, typer.Option("--off", help="Disable it; its pending deliveries become dead.")
    ] = False,
    directory: DirOption = None,
) -> None:
    """Send later deliveries to an endpoint again, or with --off none."""
    book = _service_dir(directory).endpoint_book()
    if off:
        book.disable(endpoint_id, reason="by the operator")
    else:
        book.enable(endpoint_id)
    people.print(f"{endpoint_id} {'disabled' if off else 'enabled'}", soft_wrap=True)


@endpoints_app.command("deliveries")
def list_deliveries(
    dead: Annotated[bool, typer.Option("--dead", help="Show dead deliveries only.")] = False,
    retry: Annotated[
        list[str] | None, typer.Option(help="Retry this dead delivery now; may be repeated.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most this many deliveries of each kind.")
    ] = 100,
    directory: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List pending and dead deliveries, or retry dead ones with the full retry schedule."""
    with _service_dir(directory).outbox() as box:
        for delivery_id in retry or ():
            box.requeue(delivery_id, now=utc_now())
            people.print(f"{delivery_id} requeued", soft_wrap=True)
        found = (() if dead else box.pending(limit=limit)) + box.dead(limit=limit)
    if retry:
        return
    if as_json:
        print_json([_delivery_fields(delivery) for delivery in found])
        return
    if not found:
        people.print("No pending and no dead deliveries.")
        return
    # Two lines a cell: eight columns of one line fit no terminal beside such long ids.
    table = Table(Column("id, endpoint", no_wrap=True), "kind, changed", "state")
    for delivery in found:
        state = [delivery.state, f"attempts {delivery.attempts}"]
        if delivery.next_attempt_at is not None:
            state.append(f"next {_time(delivery.next_attempt_at)}")
        last = delivery.last_error or delivery.last_status
        state += [] if last is None else [f"last {last}"]
        cells = (
            (delivery.id, delivery.endpoint_id),
            (delivery.kind, _time(delivery.created_at)),
            (", ".join(state),),
        )
        table.add_row(*(fold_cell(*lines) for lines in cells))
    people.print(table)


def _show_secret(endpoint_id: str, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": endpoint_id, "secret": secret})
        return
    people.print(f"Endpoint: {endpoint_id}", soft_wrap=True)
    people.print(f"Signing secret (not shown again): {secret}", soft_wrap=True)


def _endpoint_fields(
    endpoint: Endpoint, no_push: str | None, plans: Mapping[str, Plan]
) -> dict[str, Any]:
    """Return the fields of an endpoint without the values of its secrets.

    `plan` is what the key book says of its account, null if there is no such account.
    """
    fields = msgspec.structs.asdict(endpoint)
    fields["secrets"] = [
        {"created_at": secret.created_at, "expires_at": secret.expires_at}
        for secret in endpoint.secrets
    ]
    plan = plans.get(endpoint.account)
    return {**fields, "plan": plan and plan.name, "no_push": no_push}


def _delivery_fields(delivery: OutboxDelivery) -> dict[str, Any]:
    names = ("id", "endpoint_id", "kind", "created_at", "state", "attempts", "next_attempt_at")
    return {name: getattr(delivery, name) for name in (*names, "last_status", "last_error")}


def _time(instant: datetime | None) -> str:
    return "" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%SZ")
