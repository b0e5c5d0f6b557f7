"""`almanac sandbox`: start the synthetic catalog's server and keep it until Ctrl-C."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from almanac.command_line import stop_by_signals, wait_until
from almanac.console import EXIT_INTERRUPTED, Table, fail, people
from application.cli.options import (
    CorsOption,
    DirOption,
    FirstLineOption,
    HostOption,
    PortOption,
    instant_option,
)
from application.console import print_json
from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.sandbox.faults import FAULTS
from pipeline.settings import read_settings

if TYPE_CHECKING:
    from catalog.sandbox.sandbox import Sandbox

DEFAULT_PORT = 8650


def sandbox(
    port: PortOption = DEFAULT_PORT,
    now: Annotated[
        str | None,
        typer.Option(help="Stop the clock at this time (UTC); by default it runs in real time."),
    ] = None,
    tick: Annotated[bool, typer.Option("--tick", help="Let the clock run from --now.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            help="The seed of the catalog, 1 by default; the same seed gives the same catalog."
        ),
    ] = None,
    pace: Annotated[
        float, typer.Option(min=0, max=100, help="How often events change; 1 is normal.")
    ] = 1.0,
    faults: Annotated[
        str, typer.Option(help=f"name[=value][*times]\\[@chance], of: {', '.join(FAULTS)}.")
    ] = "",
    export_interval: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            help="The minimum seconds between two exports with one key. Default: 0 for the "
            "sandbox's own keys, 60 for keys from `almanac accounts keys`.",
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    cors: CorsOption = None,
    deprecation: Annotated[
        str | None, typer.Option(help="The value of the header Deprecation in every response.")
    ] = None,
    sunset: Annotated[
        str | None, typer.Option(help="The value of the header Sunset in every response.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send webhooks here, as an endpoint of the account `sandbox` on Elite; this host "
            "and private networks are allowed.",
        ),
    ] = None,
    webhook_secret_file: Annotated[
        Path | None,
        typer.Option(
            help="The file with the signing secret, made if it is absent; by default the secret is "
            "printed."
        ),
    ] = None,
    webhook_signature: Annotated[
        SignatureForm, typer.Option(help="The form of the signature.")
    ] = SIGNATURE_FORMS[0],
    folder: DirOption = None,
    as_json: FirstLineOption = False,
) -> None:
    """Serve the service's interface locally, over a synthetic catalog that keeps changing."""
    from catalog.sandbox.control import SandboxClock
    from catalog.sandbox.sandbox import DEFAULT_SEED, Sandbox
    from catalog.server.app import ServerOptions

    if webhook is None and webhook_secret_file is not None:
        fail("--webhook-secret-file needs --webhook URL, which is missing", code=2)
    secret = None if webhook_secret_file is None else _secret_in(webhook_secret_file)
    try:
        clock = SandboxClock(None if now is None else instant_option("--now", now))
        if tick:
            clock.run()
        box = Sandbox(
            seed=DEFAULT_SEED if seed is None else seed,
            pace=pace,
            clock=clock,
            faults=faults,
            export_interval_s=export_interval,
            host=host,
            port=port,
            state_dir=folder or read_settings().service_dir,
            push_tls=read_settings().network().trust(),
            options=ServerOptions(
                cors_origins=tuple(cors or ()), deprecation=deprecation, sunset=sunset
            ),
        )
    except ValueError as error:
        fail(str(error), code=2)
    stop = threading.Event()
    stop_by_signals(stop.set)
    box.start()
    try:
        made = None
        if webhook is not None:
            try:
                made = box.subscribe(webhook, secret=secret, signature=webhook_signature)
            except TimeoutError as error:
                fail(str(error))
        _announce(box, webhook, None if secret else made, as_json=as_json)
        wait_until(stop)
    finally:
        box.stop()
    if not as_json:
        people.print("Stopped.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _secret_in(file: Path) -> str:
    """Return the secret of a file, which is made for its owner alone if it is absent."""
    from catalog.server.webhooks.endpoints import new_secret

    try:
        with suppress(FileExistsError), open(file, "x", opener=_for_its_owner) as made:
            made.write(new_secret() + "\n")
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        fail(f"the signing secret can't be read from {file}: {reason}")


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _announce(box: "Sandbox", webhook: str | None, secret: str | None, *, as_json: bool) -> None:
    """Print the server's address; with a webhook also its secret, unless the secret is in a file
    (None)."""
    if as_json:
        shown: dict[str, object] = {"base_url": box.base_url, "keys": dict(box.keys)}
        if webhook is not None:
            shown["webhook"] = {"url": webhook} | ({} if secret is None else {"secret": secret})
        print_json(shown)
        return
    stopped = "is stopped; advance it with PUT /sandbox/clock"
    how = "runs in real time" if box.clock.running else stopped
    people.print(f"Sandbox on {box.base_url}   (seed {box.seed}, pace {box.pace:g})")
    people.print(
        f"Its clock shows {box.clock.now():%Y-%m-%d %H:%M:%S} UTC and {how}.", soft_wrap=True
    )
    table = Table("Plan", "Key")
    for plan, key in box.keys.items():
        table.add_row(plan, key)
    people.print(table)
    if webhook is not None:
        people.print(f"Webhooks are sent to {webhook}", soft_wrap=True)
    if secret is not None:
        people.print(f"Signing secret: {secret}", soft_wrap=True)
    people.print(f"Reference: {box.base_url}/docs", soft_wrap=True)
    example = f"curl -H 'x-api-key: {box.keys['elite']}' '{box.base_url}/v2/events?limit=2'"
    people.print(f"Try: {example}", soft_wrap=True)
    people.print("Press Ctrl-C to stop.")
