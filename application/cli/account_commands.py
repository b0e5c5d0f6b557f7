"""The commands `keys` and `endpoints` of `almanac serve` and `almanac sandbox`.

They work on the files of a server, running or not. They print tables, or JSON with `--json`; times
are UTC. A secret is printed once, when it is created. The server's folder is the `obj` of Typer's
context.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from almanac.console import JsonOption, people
from almanac.core.timestamps import utc_now
from application.cli.options import PlanName
from application.console import print_json, show_records
from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import PLANS
from catalog.server.service_dir import ServiceDir

keys_app = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys.")
endpoints_app = typer.Typer(
    no_args_is_help=True, help="Manage webhook endpoints, and list or retry their deliveries."
)


def make_server_app() -> typer.Typer:
    """Return a command that runs a server, with `keys` and `endpoints` as its subcommands."""
    made = typer.Typer(invoke_without_command=True, add_completion=False)
    made.add_typer(keys_app, name="keys")
    made.add_typer(endpoints_app, name="endpoints")
    return made


def _service_dir(context: typer.Context) -> ServiceDir:
    return ServiceDir(context.obj)


def _is_there(context: typer.Context) -> bool:
    """Whether the folder exists, since listing must not create it."""
    folder: Path = context.obj
    return folder.exists()


@keys_app.command()
def create(
    context: typer.Context,
    account: Annotated[str, typer.Argument(help="The account; created if it is new.")],
    plan: Annotated[PlanName, typer.Option(help="The plan of a new account.")],
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, help="Requests a second; Enterprise only."),
    ] = None,
    burst: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Burst; Enterprise only.")
    ] = None,
    quota: Annotated[
        int | None, typer.Option(min=0, max=10**12, help="Requests a month; Enterprise only.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and show it once."""
    limits = {"rate_per_s": rate, "burst": burst, "monthly_quota": quota}
    key, grant = _service_dir(context).key_book().create(account, PLANS[plan], **limits)
    _show_secret(grant.id, "key", key, as_json=as_json)


@keys_app.command(name="list")
def list_keys(context: typer.Context, as_json: JsonOption = False) -> None:
    """List accounts and keys. Only the SHA-256 of a key is stored, so keys are not shown again."""
    grants = _service_dir(context).key_book().grants() if _is_there(context) else ()
    rows = [
        {
            "id": grant.id,
            "account": grant.account,
            "plan": grant.plan_name,
            "created_at": grant.created_at,
            "revoked_at": grant.revoked_at,
        }
        for grant in grants
    ]
    if as_json:
        print_json(rows)
        return
    if rows:
        show_records(rows, *rows[0])
    else:
        people.print("No keys yet; `keys create NAME --plan elite` makes one.")


@keys_app.command()
def revoke(context: typer.Context, key_id: Annotated[str, typer.Argument()]) -> None:
    """Make a key unusable immediately."""
    _service_dir(context).key_book().revoke(key_id)
    people.print(f"{key_id} revoked")


_SHOWN: Final = (
    *("id", "endpoint_id", "kind", "created_at", "state", "attempts", "next_attempt_at"),
    *("last_status", "last_error"),
)
_ENDPOINT_FIELDS: Final = (
    *("id", "account", "url", "signature", "allow_private", "created_at", "disabled_reason"),
)


@endpoints_app.command("add")
def add_endpoint(
    context: typer.Context,
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
    as_json: JsonOption = False,
) -> None:
    """Add an endpoint and print its signing secret once."""
    book = _service_dir(context).endpoint_book()
    endpoint = book.add(url, account=account, allow_private=allow_private, signature=signature)
    _show_secret(endpoint.id, "secret", endpoint.secret, as_json=as_json)


@endpoints_app.command("list")
def list_endpoints(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the endpoints."""
    known = _service_dir(context).endpoint_book().endpoints() if _is_there(context) else ()
    found = [{name: getattr(each, name) for name in _ENDPOINT_FIELDS} for each in known]
    if as_json:
        print_json(found)
    elif found:
        show_records(found, *_ENDPOINT_FIELDS)
    else:
        people.print("No endpoints yet; `endpoints add URL --account NAME` makes one.")


@endpoints_app.command("remove")
def remove_endpoint(context: typer.Context, endpoint_id: Annotated[str, typer.Argument()]) -> None:
    """Remove an endpoint; its pending deliveries become dead."""
    _service_dir(context).endpoint_book().remove(endpoint_id)
    people.print(f"{endpoint_id} removed", soft_wrap=True)


@endpoints_app.command("deliveries")
def list_deliveries(
    context: typer.Context,
    dead: Annotated[bool, typer.Option("--dead", help="Show dead deliveries only.")] = False,
    retry: Annotated[
        list[str] | None, typer.Option(help="Retry this dead delivery now; may be repeated.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most this many deliveries of each kind.")
    ] = 100,
    as_json: JsonOption = False,
) -> None:
    """List pending and dead deliveries, or retry dead ones with the full retry schedule."""
    with _service_dir(context).outbox() as box:
        for delivery_id in retry or ():
            box.requeue(delivery_id, now=utc_now())
            people.print(f"{delivery_id} is retried", soft_wrap=True)
        found = (() if dead else box.pending(limit=limit)) + box.dead(limit=limit)
    if retry:
        return
    records = [{name: getattr(delivery, name) for name in _SHOWN} for delivery in found]
    if as_json:
        print_json(records)
    elif records:
        show_records(records, *_SHOWN)
    else:
        people.print("No pending and no dead deliveries.")


def _show_secret(owner: str, name: str, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": owner, name: secret})
        return
    people.print(f"{owner}, its {name}: {secret}", soft_wrap=True)
    people.print("Store it now: it is not shown again.")
