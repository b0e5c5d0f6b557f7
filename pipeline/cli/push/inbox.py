"""`almanac inbox`: list and show received webhooks; replay or dismiss dead letters."""

import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from almanac.forms import escaped
from catalog.contract.constants import WEBHOOK_MEANINGS
from pipeline.cli.options import JsonOption
from pipeline.cli.push.delivery_states import (
    InboxView,
    NotChosen,
    StatedDelivery,
    body_lines,
    body_of,
    body_record,
    counted,
    landed_page,
)
from pipeline.console import (
    EXIT_USAGE,
    Column,
    Table,
    errors_as_messages,
    fail,
    folded,
    people,
    print_json,
)
from pipeline.home_location import locate_existing_home
from resources.inbox.landing import waiting_deliveries
from resources.inbox.progress import Outcome, ProgressFile
from warehouse.home import Home

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
        bool, typer.Option("--dead", help="Only dead letters that nobody settled.")
    ] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Only those of a type that this version ignores.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to list.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List received webhooks, the newest first. Dead letters can't be landed without a person."""
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
    """Show a delivery: what was received when, what became of it, and its body."""
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
    for field, value in record.items():
        shown = f"{value:%Y-%m-%d %H:%M:%S} UTC" if isinstance(value, datetime) else value
        people.print(f"{field:<16} {'-' if shown is None else shown}", soft_wrap=True)
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
    """Land dead letters with the next landing, at their own instant of receipt.

    Their days are folded again, as if they had been read at once. One that this version can't read
    stays where it is.
    """
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
    """Accept that dead letters are never landed: they are warned of no longer, and kept."""
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
