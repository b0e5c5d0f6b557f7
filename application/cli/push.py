"""Push on the command line: `almanac receive` receives webhooks, `almanac inbox` lists those that
wait and those that can't be applied, and settles the latter."""

import threading
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from almanac.command_line import stop_by_signals, wait_until
from almanac.console import EXIT_INTERRUPTED, EXIT_USAGE, JsonOption, fail, people
from almanac.core.text import count_noun
from almanac.core.timestamps import utc_now
from application.cli.options import FirstLineOption, HostOption, PortOption
from application.console import print_json, show_records
from pipeline.home_location import locate_existing_home, locate_home
from pipeline.settings import Settings, read_settings
from resources.request_log import read_push_plan
from resources.service_clock import service_time
from warehouse.files.locks import hold_lock
from warehouse.landing.inbox import ABANDONED_S, STATES, Inbox, State, read_receipt_time

DEFAULT_PORT = 8030
_LOCK_WAIT_S = 2.0
"""For merges in the receiver: a stop waits at most this long, and a locked merge is tried again."""

inbox_app = typer.Typer(
    help="List webhooks that are not landed; retry or dismiss rejected ones.",
    no_args_is_help=True,
    add_completion=False,
)
_Names = Annotated[list[str] | None, typer.Argument(help="Names of rejected deliveries.")]
_All = Annotated[bool, typer.Option("--all", help="All rejected deliveries.")]


@inbox_app.command(name="list")
def list_deliveries(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="List at most this many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List webhooks that are not landed, the newest first: waiting, rejected and dismissed ones.

    With --json, each has its body."""
    inbox = Inbox(locate_existing_home())
    named = ((name, state) for state in STATES for name in inbox.names(state))
    newest = sorted(named, key=lambda found: read_receipt_time(found[0]), reverse=True)[:limit]
    records = [_record(inbox, name, state) for name, state in newest]
    if as_json:
        print_json(records)
        return
    if not records:
        people.print("No delivery waits, and none is rejected. Landed ones are in `batches`.")
        return
    show_records(records, "received_at", "type", "event_id", "state", "reason", "name")
    if waiting := len(inbox.names()):
        people.print(f"{waiting:,} wait to be landed. Next: almanac merge")


def _record(inbox: Inbox, name: str, state: State) -> dict[str, Any]:
    delivery = inbox.read(name, state)
    return {
        "name": name,
        "received_at": delivery.received_at,
        "state": state,
        "reason": inbox.reason(name, state),
        "id": delivery.head.delivery_id,
        "type": delivery.head.kind,
        "event_id": delivery.head.event_id,
        "bytes": len(delivery.body),
        "body": delivery.body.decode("utf-8", "backslashreplace"),
    }


@inbox_app.command()
def retry(names: _Names = None, every: _All = False, as_json: JsonOption = False) -> None:
    """Land the rejected deliveries that this version can read, with their time of receipt.

    Their days are folded again, as if they had been read on receipt. The others stay."""
    home = locate_existing_home()
    inbox = Inbox(home, read_push_plan(home.state))
    chosen = _chosen(inbox, names, every=every)
    inbox.retry(chosen, utc_now)
    stay = sorted(set(chosen) & set(inbox.names("rejected")))
    if as_json:
        print_json({"landed": sorted(set(chosen) - set(stay)), "unreadable": stay})
        return
    for name in stay:
        people.print(f"{name} stays: this version can't read it either.", soft_wrap=True)
    people.print(f"Landed: {len(chosen) - len(stay):,}. Next: almanac merge")


@inbox_app.command()
def dismiss(names: _Names = None, every: _All = False, as_json: JsonOption = False) -> None:
    """Leave rejected deliveries out permanently: their files are kept, without a warning."""
    inbox = Inbox(locate_existing_home())
    chosen = _chosen(inbox, names, every=every)
    inbox.dismiss(chosen)
    if as_json:
        print_json({"dismissed": chosen})
        return
    people.print(f"Dismissed: {len(chosen):,}. Their files are in {inbox.path('', 'dismissed')}.")


def _chosen(inbox: Inbox, names: list[str] | None, *, every: bool) -> list[str]:
    """Return the rejected deliveries that the arguments name."""
    rejected = inbox.names("rejected")
    if bool(names) == every:
        fail("give names of rejected deliveries, or --all.", code=EXIT_USAGE)
    for name in names or ():
        if name not in rejected:
            fail(f"no rejected delivery is named {name}. Nothing was changed.")
    return rejected if names is None or every else sorted(set(names))


def receive(
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    path: Annotated[str, typer.Option(help="The path to which webhooks are sent.")] = "/webhooks",
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Also merge what arrives, within seconds. Without it, Dagster does."
        ),
    ] = False,
    as_json: FirstLineOption = False,
) -> None:
    """Receive webhooks: verify, store durably, then acknowledge.

    Only deliveries signed with a secret of ALMANAC_WEBHOOK_SECRETS are accepted. They wait in the
    inbox until Dagster, `almanac merge` or --merge puts them into the warehouse. TLS is for a
    reverse proxy in front.
    """
    from application.receiver import MergeThread, Receiver, make_verifier
    from catalog.server.hosting import HostedApp

    if not path.startswith("/") or set(path) & set("{}?# "):
        fail(f"--path: expected a path such as /webhooks, got {path!r}.", code=EXIT_USAGE)
    settings = read_settings()
    make_verifier(settings)
    home = locate_home(settings)
    home.check(settings.source)
    home.claim(settings.source)
    inbox, merging = Inbox(home), None
    if merge:
        merging = MergeThread(locate_home(settings, wait_s=_LOCK_WAIT_S), utc_now)
    receiver = Receiver(
        lambda: make_verifier(settings),
        inbox,
        service_time(home.state, utc_now),
        path=path,
        stored=(lambda: None) if merging is None else merging.wake,
    )
    server = HostedApp(receiver.app, host=host, port=port)
    stop = threading.Event()
    stop_by_signals(stop.set)
    with ExitStack() as opened:
        # For `almanac status`, which says whether a receiver runs.
        opened.enter_context(hold_lock(home.receiver_lock, "to receive", wait_s=1.0))
        inbox.files.remove_unfinished(older_than_s=ABANDONED_S)
        server.start()
        opened.callback(server.stop)
        if merging is not None:
            merging.start()
            opened.callback(merging.stop)
        _announce(settings, server.base_url, path, merge=merge, as_json=as_json)
        wait_until(stop)
    if not as_json:
        people.print("Stopped. Acknowledged deliveries are in the inbox.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _announce(settings: Settings, address: str, path: str, *, merge: bool, as_json: bool) -> None:
    if as_json:
        print_json({"url": address + path, "health": f"{address}/healthz", "merge": merge})
        return
    people.print(f"Receiving webhooks on {address}{path}", soft_wrap=True)
    secrets = count_noun(len(settings.signing_secrets()), "secret")
    people.print(f"Accepted: {settings.signature_header}, by {secrets}.", soft_wrap=True)
    if merge:
        people.print("Deliveries are merged within seconds.")
    else:
        people.print("Deliveries wait in the inbox for Dagster (`almanac ui`, `almanac daemon`).")
    people.print("Press Ctrl-C to stop.")
