"""`almanac receive`: receive webhooks until Ctrl-C; each is stored before it is answered."""

import threading
from contextlib import ExitStack
from datetime import timedelta
from typing import Annotated

import typer

from pipeline.cli.options import stop_by_signals, wait_until
from pipeline.console import EXIT_INTERRUPTED, fail, people, print_json
from pipeline.home_location import locate_home
from pipeline.settings import Settings, read_settings
from resources.service_clock import service_time
from warehouse.clock import utc_now


def receive(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on. Default: ALMANAC_RECEIVE_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="The port; 0 takes a free one. Default: ALMANAC_RECEIVE_PORT."
        ),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Also merge what arrives, within seconds. Without it, Dagster does."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
    ] = False,
) -> None:
    """Receive webhooks: verify, store durably, then acknowledge.

    Only deliveries signed with a secret of ALMANAC_WEBHOOK_SECRETS are accepted. They wait in the
    inbox until Dagster, `almanac merge` or --merge puts them into the warehouse. TLS is for a
    reverse proxy in front.
    """
    # Imported here, so that the help and wrong options need no server.
    from catalog.server.hosting import HostedApp, HostingError
    from pipeline.receiver.app import ReceiverApp
    from pipeline.receiver.merging import LOCK_WAIT_S, MergeThread
    from pipeline.receiver.secret_files import CurrentVerifier
    from pipeline.receiver.upkeep import Upkeep
    from resources.inbox.inbox_file import InboxWriter
    from resources.inbox.landing import waiting_deliveries

    settings = read_settings()
    verifier = CurrentVerifier(settings)
    home = locate_home(settings)
    home.check(settings.source)
    home.claim(settings.source)
    clock = service_time(home.state, utc_now)
    stop = threading.Event()
    stop_by_signals(stop.set)
    with ExitStack() as opened:
        writer = opened.enter_context(InboxWriter.open(home, clock))
        # Refuses files that are not of one inbox, before anything is acknowledged.
        waiting_deliveries(home)
        merging = None
        if merge:
            merging = MergeThread(locate_home(settings, wait_s=LOCK_WAIT_S), utc_now)
        app = ReceiverApp(
            verifier,
            writer,
            clock,
            path=settings.receive_path,
            stored=(lambda: None) if merging is None else merging.wake,
            upkeep=Upkeep(home, writer, clock, keep=timedelta(days=settings.keep_deliveries_days)),
        )
        server = HostedApp(
            app,
            host=settings.receive_host if host is None else host,
            port=settings.receive_port if port is None else port,
        )
        try:
            server.start()
        except HostingError as error:
            fail(str(error))
        opened.callback(server.stop)
        opened.callback(app.stop_reading)
        if merging is not None:
            merging.start()
            opened.callback(merging.stop)
        _announce(settings, server.base_url, merge=merge, as_json=as_json)
        wait_until(stop)
    if not as_json:
        people.print("Stopped. What was acknowledged is in the inbox.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _announce(settings: Settings, base_url: str, *, merge: bool, as_json: bool) -> None:
    url = base_url + settings.receive_path
    if as_json:
        print_json({"url": url, "health": f"{base_url}/healthz", "merge": merge})
        return
    people.print(f"Receiving webhooks on {url}", soft_wrap=True)
    count = len(settings.signing_secrets())
    secrets = "1 secret" if count == 1 else f"{count} secrets"
    people.print(
        f"Accepted: {settings.signature_header} of the forms "
        f"{', '.join(settings.signature_forms)}, by {secrets}.",
        soft_wrap=True,
    )
    if merge:
        people.print("What arrives is merged within seconds.")
    else:
        people.print(
            "What arrives waits in the inbox for Dagster (`almanac ui`, `almanac daemon`)."
        )
    people.print("Press Ctrl-C to stop.")
