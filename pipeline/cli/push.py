"""Push on the command line: `almanac receive` receives webhooks, `almanac inbox` lists, shows,
replays and dismisses them.

The state of a delivery comes from the inbox, the landing progress and landing together.
"""

import json
import logging
import sys
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import typer

from almanac.command_line import stop_by_signals, wait_until
from almanac.console import EXIT_INTERRUPTED, EXIT_USAGE, Column, JsonOption, Table, fail, people
from almanac.forms import escaped
from catalog.contract.constants import WEBHOOK_MEANINGS
from pipeline.console import errors_as_messages, folded, print_json
from pipeline.home_location import locate_existing_home, locate_home
from pipeline.settings import Settings, read_settings
from resources.inbox.deliveries import waiting_deliveries
from resources.inbox.inbox_file import InboxDelivery, InboxReader
from resources.inbox.progress import (
    LandingProgress,
    Outcome,
    ProgressFile,
    SettledLetter,
    read_progress,
    settled_letters,
)
from resources.service_clock import service_time
from warehouse.clock import utc_now
from warehouse.errors import DamagedBatch, LandingError, WarehouseError
from warehouse.home import Home
from warehouse.landing.batches import LandedPage, Manifest, parse_feed
from warehouse.normalise.json_feeds import delivery_head
from warehouse.queries import read_rejected_deliveries

log = logging.getLogger(__name__)

State = Literal["waiting", "landed", "dead", "replayed", "dismissed"]
"""Landed with the next landing; in landing; a dead letter not replayed or dismissed yet; a dead
letter that was landed later; a dead letter that is never landed."""


class NotChosen(Exception):
    """An argument names no delivery, several, or one in another state. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class StatedDelivery:
    """A delivery with its state, and the decision of a person if it is a dead letter."""

    delivery: InboxDelivery
    state: State
    settled: SettledLetter | None = None
    rejected: str | None = None
    """Why the merge left it out, though it was landed."""

    @property
    def is_letter(self) -> bool:
        """Whether it is or was a dead letter."""
        return self.delivery.trouble is not None

    def record(self) -> dict[str, Any]:
        """Return what a list shows, for JSON."""
        found = self.delivery
        return {
            "seq": found.seq,
            "id": found.delivery_id,
            "received_at": found.received_at,
            "type": found.kind,
            "event_id": found.event_id,
            "bytes": found.size,
            "state": self.state,
            "trouble": found.trouble,
            "rejected": self.rejected,
        }


@dataclass(frozen=True, slots=True)
class InboxView:
    """The inbox of a home at one moment: reads the deliveries that are asked for, and no others."""

    home: Home
    reader: InboxReader
    progress: LandingProgress
    settled: dict[int, SettledLetter] = field(repr=False)

    @classmethod
    def of(cls, home: Home) -> "InboxView":
        """Read how far landing is, and what was settled.

        Raises:
            InboxUnusable: a file of the inbox can't be read; as all methods here.
        """
        return cls(home, InboxReader(home), read_progress(home), settled_letters(home))

    def newest(self, limit: int) -> list[StatedDelivery]:
        return self._stated(self.reader.newest(limit))

    def of_unknown_kinds(self, limit: int) -> list[StatedDelivery]:
        return self._stated(self.reader.of_unknown_kinds(limit))

    def dead(self, limit: int | None = None) -> list[StatedDelivery]:
        """Return the newest dead letters not replayed or dismissed yet, the newest first."""
        in_trouble = self.reader.count_in_trouble()
        most = in_trouble if limit is None else min(in_trouble, limit + len(self.settled))
        stated = self._stated(self.reader.in_trouble(most))
        return [letter for letter in stated if letter.state == "dead"][:limit]

    def count_dead(self) -> int:
        """Return the number of dead letters not replayed or dismissed yet."""
        return self.reader.count_in_trouble() - len(self.settled)

    def named(self, name: str) -> list[StatedDelivery]:
        """Return the deliveries with an id, or the one with a number, bodies included.

        Raises:
            NotChosen: there is none.
        """
        found = self.reader.by_id(name)
        if not found and name.isascii() and name.isdigit() and len(name) < 19:
            by_seq = self.reader.by_seq(int(name))
            found = [] if by_seq is None else [by_seq]
        if not found:
            raise NotChosen(
                f"no delivery has the id or number {name!r}. Nothing was changed. `almanac inbox "
                "list` shows the newest."
            )
        return self._stated(found)

    def single_named(self, name: str) -> StatedDelivery:
        """Return the delivery with an id or a number.

        Raises:
            NotChosen: there is none, or several bodies came with the id.
        """
        found = self.named(name)
        if len(found) > 1:
            seqs = ", ".join(str(stated.delivery.seq) for stated in found)
            raise NotChosen(f"{name} came with {len(found)} bodies; name one by its number: {seqs}")
        return found[0]

    def letters_named(self, names: Iterable[str], *states: State) -> list[StatedDelivery]:
        """Return the dead letters with these ids or numbers that are in one of some states.

        Raises:
            NotChosen: a name has none.
        """
        chosen: dict[int, StatedDelivery] = {}
        for name in names:
            found = self.named(name)
            letters = [letter for letter in found if letter.state in states and letter.is_letter]
            if not letters:
                raise NotChosen(
                    f"delivery {name} is {found[0].state}; expected a dead letter in the state "
                    f"{' or '.join(states)}. Nothing was changed."
                )
            chosen |= {letter.delivery.seq: letter for letter in letters}
        return [chosen[seq] for seq in sorted(chosen)]

    def why_unreadable(self, letter: StatedDelivery) -> str | None:
        """Return why this version can't read a dead letter either, None if it can."""
        whole = self.reader.by_seq(letter.delivery.seq)
        return delivery_head((whole and whole.body) or b"").why_unreadable

    def _stated(self, deliveries: Iterable[InboxDelivery]) -> list[StatedDelivery]:
        rejected = _rejections(self.home)
        return [
            StatedDelivery(
                *(found, self._state(found), self.settled.get(found.seq)),
                rejected.get((found.received_at, found.body_sha256.hex())),
            )
            for found in deliveries
        ]

    def _state(self, delivery: InboxDelivery) -> State:
        if delivery.trouble is None:
            return "landed" if delivery.seq <= self.progress.landed_to else "waiting"
        settled = self.settled.get(delivery.seq)
        if settled is None:
            return "dead"
        if settled.outcome == "dismissed":
            return "dismissed"
        return "waiting" if settled.landed_at is None else "replayed"


def _rejections(home: Home) -> dict[tuple[datetime, str], str]:
    """Return why landed deliveries were rejected, by their receipt and the hash of their body."""
    found: dict[tuple[datetime, str], str] = {}
    try:
        rejected = read_rejected_deliveries(home.warehouse)
    except WarehouseError as error:
        log.warning("%s Rejected deliveries are listed as landed.", error)
        return found
    for batch_id, reasons in rejected.items():
        try:
            manifest = home.landing.manifest(batch_id)
        except LandingError:
            continue  # `almanac verify` reports it.
        for position, page in enumerate(manifest.pages):
            reason = reasons.get(position, reasons.get(None))
            if reason is not None and page.received_at is not None:
                found[page.received_at, page.sha256] = reason
    return found


def landed_page(home: Home, delivery: InboxDelivery) -> tuple[Manifest, LandedPage] | None:
    """Return the batch of a landed delivery and its page there, None if it is in none."""
    digest = delivery.body_sha256.hex()
    for batch_id in home.landing.batch_ids(day=delivery.received_at.date()):
        if parse_feed(batch_id) != "deliveries":
            continue
        try:
            manifest = home.landing.manifest(batch_id)
        except DamagedBatch:
            continue  # `almanac verify` reports it.
        for page in manifest.pages:
            if page.received_at == delivery.received_at and page.sha256 == digest:
                return manifest, page
    return None


def body_of(
    home: Home, delivery: InboxDelivery, landed: tuple[Manifest, LandedPage] | None
) -> bytes | None:
    """Return the bytes of a delivery, from landing if the inbox cleared them.

    Raises:
        DamagedBatch: its batch can't be read.
    """
    if delivery.body is not None or landed is None:
        return delivery.body
    manifest, wanted = landed
    return next((body for page, body in home.landing.pages(manifest) if page == wanted), None)


def body_lines(body: bytes) -> Iterator[str]:
    """Yield a body for a person: JSON with indents, any other text as it is, bytes as escapes."""
    text = body.decode("utf-8", "backslashreplace")
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    yield from text.split("\n")


def body_record(body: bytes | None) -> dict[str, str | None]:
    """Return a body for JSON: as a text, or in base64 if it is none."""
    try:
        return {"body": None if body is None else body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": b64encode(body or b"").decode()}


def counted(letters: Sequence[StatedDelivery]) -> str:
    return "1 dead letter" if len(letters) == 1 else f"{len(letters):,} dead letters"


inbox_app = typer.Typer(
    help="List and show received webhooks; replay or dismiss dead letters.",
    no_args_is_help=True,
    add_completion=False,
)

_Names = Annotated[list[str] | None, typer.Argument(help="Ids or numbers of dead letters.")]
_SHOWN_REASONS = 10


@inbox_app.command(name="list")
def list_deliveries(
    dead: Annotated[
        bool, typer.Option("--dead", help="Only dead letters not replayed or dismissed yet.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Only deliveries of a type that this version ignores.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="List at most this many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List received webhooks, the newest first. A dead letter waits for replay or dismiss."""
    if dead and unknown:
        fail("--dead and --unknown can't be given together.", code=EXIT_USAGE)
    home = locate_existing_home()
    view = InboxView.of(home)
    select = view.dead if dead else view.of_unknown_kinds if unknown else view.newest
    found = select(limit)
    if as_json:
        print_json([stated.record() for stated in found])
        return
    if not found:
        people.print(_none(view, dead=dead, unknown=unknown), soft_wrap=True)
        return
    table = Table(Column("No.", justify="right"), "Received (UTC)", "Type", "Event", "State", "Id")
    for stated in found:
        delivery = stated.delivery
        why = delivery.trouble if stated.rejected is None else f"rejected: {stated.rejected}"
        state = stated.state if why is None else f"{stated.state}: {why}"
        cells = (delivery.kind or "-", delivery.event_id or "-", state, delivery.delivery_id)
        table.add_row(str(delivery.seq), _time(delivery.received_at), *map(folded, cells))
    people.print(table)
    waiting = waiting_deliveries(home).count
    if waiting:
        people.print(f"{waiting:,} wait to be landed. Next: almanac merge")
    if (count := view.count_dead()) and not dead:
        noun = "dead letter" if count == 1 else "dead letters"
        people.print(f"{count:,} {noun}: almanac inbox list --dead")


def _none(view: InboxView, *, dead: bool, unknown: bool) -> str:
    if view.reader.last() is None:
        return "No delivery was received. `almanac receive` receives webhooks."
    if dead:
        return "No dead letters."
    return "No deliveries of an unknown type." if unknown else "No deliveries."


@inbox_app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID|NUMBER", help="A delivery.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the bytes of the body, and nothing else.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a delivery: time of receipt, state, and body."""
    home = locate_existing_home()
    with errors_as_messages(NotChosen):
        stated = InboxView.of(home).single_named(name)
    landed = landed_page(home, stated.delivery)
    body = body_of(home, stated.delivery, landed)
    if raw:
        if body is None:
            fail("the body is neither in the inbox nor in landing. Nothing was written.")
        if sys.stdout.isatty():
            # Bytes of others may hold sequences that act on a terminal.
            body = escaped(body.decode("utf-8", "backslashreplace")).encode()
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    record = _record(stated, None if landed is None else landed[0].batch_id)
    if as_json:
        print_json(record | body_record(body))
        return
    for key, value in record.items():
        shown = f"{value:%Y-%m-%d %H:%M:%S} UTC" if isinstance(value, datetime) else value
        people.print(f"{key:<16} {'-' if shown is None else shown}", soft_wrap=True)
    people.print()
    for line in ["(no body)"] if body is None else body_lines(body):
        people.print(line, soft_wrap=True)


def _record(stated: StatedDelivery, batch_id: str | None) -> dict[str, Any]:
    kind = stated.delivery.kind
    return {
        **stated.record(),
        "meaning": None if kind is None else WEBHOOK_MEANINGS.get(kind, "unknown type: ignored"),
        "sha256": stated.delivery.body_sha256.hex(),
        "replayed_at": None if stated.settled is None else stated.settled.landed_at,
        "batch": batch_id,
    }


@inbox_app.command()
def replay(
    names: _Names = None,
    all_dead: Annotated[
        bool, typer.Option("--all-dead", help="All dead letters that this version can read.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Try dead letters again: the next landing includes them, with their time of receipt.

    Their days are folded again, as if they had been read on receipt. A delivery that this version
    can't read stays."""
    home = locate_existing_home()
    view = InboxView.of(home)
    with errors_as_messages(NotChosen):
        chosen, unreadable = _readable(view, _chosen(view, names, all_dead=all_dead))
        if unreadable and not all_dead:
            name, why = next(iter(unreadable.items()))
            raise NotChosen(
                f"{name} can't be read by this version either: {why}. Nothing was changed. Replay "
                "it after an upgrade that can, or dismiss it."
            )
        _settle(home, chosen, "replayed")
    if as_json:
        print_json({"replayed": _seqs(chosen), "unreadable": unreadable})
        return
    for seq, why in list(unreadable.items())[:_SHOWN_REASONS]:
        people.print(f"{seq} stays: this version can't read it either: {why}", soft_wrap=True)
    if len(unreadable) > _SHOWN_REASONS:
        people.print(f"... and {len(unreadable) - _SHOWN_REASONS:,} more stay.")
    if not chosen:
        people.print("No dead letter that can be read. Nothing was changed.")
        return
    people.print(f"{counted(chosen)} will be landed with the next landing. Next: almanac merge")


def _chosen(view: InboxView, names: list[str] | None, *, all_dead: bool) -> list[StatedDelivery]:
    if bool(names) == all_dead:
        fail("give ids or numbers of dead letters, or --all-dead.", code=EXIT_USAGE)
    if all_dead:
        return view.dead()
    return view.letters_named(names or (), "dead", "dismissed")


def _readable(
    view: InboxView, letters: list[StatedDelivery]
) -> tuple[list[StatedDelivery], dict[int, str]]:
    """Return the letters that this version can read, and why it can't read the others."""
    reasons = {letter.delivery.seq: view.why_unreadable(letter) for letter in letters}
    readable = [letter for letter in letters if reasons[letter.delivery.seq] is None]
    return readable, {seq: why for seq, why in reasons.items() if why is not None}


@inbox_app.command()
def dismiss(names: _Names = None, as_json: JsonOption = False) -> None:
    """Leave dead letters out permanently: they are kept, without a warning."""
    home = locate_existing_home()
    if not names:
        fail("give ids or numbers of dead letters.", code=EXIT_USAGE)
    with errors_as_messages(NotChosen):
        chosen = InboxView.of(home).letters_named(names, "dead", "waiting")
        _settle(home, chosen, "dismissed")
    if as_json:
        print_json({"dismissed": _seqs(chosen)})
        return
    people.print(f"{counted(chosen)} dismissed. `almanac inbox replay` would still land them.")


def _settle(home: Home, letters: list[StatedDelivery], outcome: Outcome) -> None:
    if letters:
        with ProgressFile.open(home) as file:
            file.settle(_seqs(letters), outcome)


def _seqs(letters: list[StatedDelivery]) -> list[int]:
    return [letter.delivery.seq for letter in letters]


def _time(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


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
    from resources.inbox.deliveries import waiting_deliveries
    from resources.inbox.inbox_file import InboxWriter

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
        # Refuses files that do not belong together, before anything is acknowledged.
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
        people.print("Stopped. Acknowledged deliveries are in the inbox.")
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
        people.print("Deliveries are merged within seconds.")
    else:
        people.print("Deliveries wait in the inbox for Dagster (`almanac ui`, `almanac daemon`).")
    people.print("Press Ctrl-C to stop.")
