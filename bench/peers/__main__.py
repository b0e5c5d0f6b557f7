"""`python -m bench.peers`: daily exports through Almanac and other tools that keep history.

Each tool runs in an environment of its own, made in `build/peers` at the first run, and in one
long-running process, which takes an export a day: insertions, moved dates, dates that move back,
withdrawals and returns. The histories are compared before a time is printed. It needs Linux.
"""

import argparse
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.progress import Progress

from bench.children import ChildFailed
from bench.exports import known_at, write_export
from bench.peers.child import INCOMING
from bench.peers.comparison import Reference, ask_questions, compare_history
from bench.peers.report import SideResults, show_results
from bench.peers.sides import LATE, SIDES, RunningSide, Side

_WIDTH: Final = 130


class HistoriesDiffer(Exception):
    """A side's history is wrong, or it can do what it is said not to; no time is shown."""


def run_round(
    folder: Path, sides: list[Side], given: argparse.Namespace, progress: Progress
) -> dict[str, SideResults]:
    """Give the exports to all sides in turns; compare; ask; then give them the late day."""
    last = max(given.days)
    late = last - 1 if last > 2 else None
    task = progress.add_task("environments", total=len(sides) * (last + 2))
    incoming, kept = folder / INCOMING, folder / "late.csv"
    reference = Reference(folder / "reference.duckdb")
    results = {side.name: SideResults() for side in sides}
    with ExitStack() as stack:
        running = [stack.enter_context(RunningSide(side, folder)) for side in sides]
        for side in running:
            results[side.side.name].versions = side.versions
        for number in range(last + 1):
            write_export(
                incoming,
                events=given.events,
                number=number,
                changed_per_mille=given.changed,
                gone_per_mille=given.gone,
                inserted=max(1, given.events // 2_500),
            )
            reference.add(incoming, known_at(number))
            if number == late:
                shutil.copyfile(incoming, kept)
                continue
            for place in range(len(running)):
                side = running[(place + number) % len(running)]
                progress.update(task, description=f"day {number}, {side.side.name}", advance=1)
                results[side.side.name].days[number] = side.take(known_at(number))
        progress.update(task, description="comparing histories")
        reference.make_history(left_out=None if late is None else known_at(late))
        for side in running:
            found = results[side.side.name]
            found.counts = compare_history(side.side, side.file, reference.file)
            _check_counts(side.side, found)
            found.sizes = side.measure_bytes()
        for side in running:
            progress.update(task, description=f"questions, {side.side.name}", advance=1)
            results[side.side.name].questions = ask_questions(
                side.side,
                side.file,
                reference.file,
                at=known_at(last // 2),
                since=known_at(max(0, last - 7)),
                until=known_at(last),
            )
        if late is not None:
            shutil.copyfile(kept, incoming)
            reference.make_history(left_out=None)
            for side in running:
                progress.update(task, description=f"late day, {side.side.name}", advance=1)
                _take_late_day(side, late, reference, results[side.side.name])
    progress.remove_task(task)
    return results


def _check_counts(side: Side, found: SideResults) -> None:
    """Raises HistoriesDiffer."""
    wrong = {kind: n for kind, (_, n) in found.counts.items() if n and kind not in side.cannot}
    able = [kind for kind in side.cannot if found.counts.get(kind, (0, 1))[1] == 0]
    if wrong:
        raise HistoriesDiffer(f"{side.name}: rows that differ from the exports: {wrong}")
    if able:
        raise HistoriesDiffer(f"{side.name} can do what sides.py says it cannot: {able}")


def _take_late_day(
    running: RunningSide, late: int, reference: Reference, found: SideResults
) -> None:
    try:
        figures = running.take(known_at(late))
        counts = compare_history(running.side, running.file, reference.file)
        rows, differing = (sum(each) for each in zip(*counts.values(), strict=True))
        found.counts[LATE] = rows, differing
        found.late = figures if not differing else {}
    except ChildFailed:
        if LATE not in running.side.cannot:
            raise
        found.counts[LATE] = (0, 1)
    _check_counts(running.side, found)


def _read_days(text: str) -> list[int]:
    days = sorted({int(day) for day in text.split(",")})
    if not days or days[0] < 1:
        raise argparse.ArgumentTypeError("expected days from 1, such as 1,30,90")
    return days


def _read_names(text: str) -> list[Side]:
    named = {side.name.lower(): side for side in SIDES}
    try:
        return [named[name.strip().lower()] for name in text.split(",")]
    except KeyError as error:
        known = ", ".join(named)
        raise argparse.ArgumentTypeError(f"no side {error}; expected some of {known}") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--days", type=_read_days, default=[1, 10], help="such as 1,30,90")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=_read_names, default=[*SIDES], help="such as almanac,dlt")
    parser.add_argument("--changed", type=int, default=7, help="of a thousand events, each day")
    parser.add_argument("--gone", type=int, default=10, help="of a thousand events, in 90 days")
    parser.add_argument("--folder", type=Path, help="where to work; else a temporary folder")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    console = Console(highlight=False)
    console.width = max(console.width, _WIDTH)
    rounds = []
    with Progress(console=console, transient=True) as progress:
        for _ in range(given.rounds):
            with TemporaryDirectory(prefix="almanac-peers-", dir=given.folder) as folder:
                try:
                    rounds.append(run_round(Path(folder), given.only, given, progress))
                except (ChildFailed, HistoriesDiffer) as error:
                    sys.exit(str(error))
    title = f"{given.events:,} events, {given.changed / 10} % changed a day, rounds: {given.rounds}"
    show_results(console, title, rounds, given.days, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
