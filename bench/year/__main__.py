"""`python -m bench.year`: the records of a year, and how fast Dagster's pages are at its end.

    python -m bench.year [--days 365] [--news 12] [--failures 2] [--fault-every 6]
                         [--rounds 1500] [--folder DIR] [--json FILE]

Each day has a daily run, 96 polls and the ticks of every sensor. `--news` of the polls bring news
and so start a merge, of which `--failures` in 100 fail; the others start no run. At midnight the
production prune runs as of that time, with the default lengths.

Real: a run of each kind, executed by the real jobs over the sandbox's whole catalog (48,000
events); the storage, which is Dagster's own SQLite; the prune; the web server and the code server.
Replayed: the same runs at all other times, each stored in full (index, own database, record,
output). Not there: the daemon, whose deletion of old ticks is called as it calls it.
"""

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.report import parse_arguments
from bench.year.pages import Asked
from bench.year.simulation import DayEnd, Year

BAR_MB: Final = 200
BAR_S: Final = 2.0
_SHOWN_DAYS: Final = 30
_WIDTH: Final = 130
_WARM: Final = 4


def main() -> None:
    arguments = parse_arguments(
        __doc__ or "", days=365, news=12, failures=2, fault_every=6, rounds=1_500
    )
    console = Console(highlight=False, width=_WIDTH)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        year = Year(
            Path(folder),
            news=arguments.news,
            failures=arguments.failures,
            fault_every=arguments.fault_every,
        )
        for kind, template in year.templates.items():
            console.print(
                f"run {kind}: {template.bytes / 1e3:,.0f} kB in its own database, "
                f"{template.index_bytes / 1e3:,.0f} kB in the index"
            )
        ends: list[DayEnd] = []
        for end in year.days(arguments.days):
            ends.append(end)
            if len(ends) % _SHOWN_DAYS == 0 or len(ends) == arguments.days:
                console.print(
                    f"day {len(ends):>3}: {end.runs:>4} runs, {end.mb_before:6.1f} MB before the "
                    f"prune, {end.mb_after:6.1f} MB after it, {end.seconds:.1f} s"
                )
        times = year.page_times()
        show(console, year, ends, times)
        show_warnings(console, year)
        memory = year.memory(arguments.rounds) if arguments.rounds else []
        show_memory(console, memory)
        if arguments.json is not None:
            pages = {name: [asdict(each) for each in asked] for name, asked in times.items()}
            figures = {
                "pages": pages,
                "days": [asdict(end) for end in ends],
                # `asdict` would make a Counter anew, of its items.
                "faults": [
                    asdict(found) | {"raised": dict(found.raised)}
                    for found in year.watch.by_fault(year.faults)
                ],
                "memory": memory,
            }
            arguments.json.write_text(json.dumps(figures, indent=1, default=str))


def show(
    console: Console, year: Year, ends: list[DayEnd], times: dict[str, tuple[Asked, Asked]]
) -> None:
    """Print the times of the pages, and what the bars are about."""
    table = Table("page", "first, s", "of a processor", "again, s", "of a processor")
    for name, asked in times.items():
        table.add_row(
            name, *(f"{seconds:.2f}" for each in asked for seconds in (each.seconds, each.cpu_s))
        )
    console.print(table)
    most = max(end.mb_before for end in ends)
    slowest = max(first.seconds for first, _ in times.values())
    console.print(
        f"{year.runs:,} runs in {len(ends)} days, {ends[-1].runs} are kept; "
        f"{ends[-1].partitions} days are materialised\n"
        f"dagster/: {ends[-1].mb_after:.0f} MB at the end, at most {most:.0f} MB (bar {BAR_MB})\n"
        f"slowest page: {slowest:.2f} s (bar {BAR_S:g}); "
        f"slowest prune: {max(end.seconds for end in ends):.1f} s; "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def show_warnings(console: Console, year: Year) -> None:
    """Print which faults were warned of, for how long, and what no fault explains."""
    table = Table(
        "fault", "times", "raised", "raised after, at most", "gone after, at most", "silent", "late"
    )
    for found in year.watch.by_fault(year.faults):
        kinds = Counter[str]()
        for kind, count in sorted(found.raised.items()):
            kinds[kind.partition(":")[0]] += count
        raised = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        table.add_row(
            found.name,
            str(found.faults),
            raised,
            str(found.raised_after),
            str(found.gone_after),
            str(found.silent),
            str(found.late),
        )
    console.print(table)
    watch = year.watch
    for text, found_ones in (
        ("without a fault", watch.unexplained(year.faults)),
        ("never resolved", watch.lasting()),
    ):
        console.print(f"warnings {text}: {len(found_ones)}")
        for each in found_ones:
            console.print(f"  {each.at:%Y-%m-%d %H:%M} {each.kind}: {each.text}")
    console.print(
        f"{len(watch.seen)} warnings in {watch.checks:,} checks; {watch.posts} posts to the alert "
        "address"
    )


def show_memory(console: Console, memory: list[dict[str, Any]]) -> None:
    """Print the memory of the daemon over its ticks, and by how much it grows."""
    columns = {
        "ticks": "ticks",
        "seconds": "s",
        "daemon_mb": "daemon, MB",
        "code_server_mb": "code server, MB",
        "kept_ticks": "ticks kept",
        "dagster_mb": "dagster/, MB",
    }
    table = Table(*columns.values())
    for each in memory:
        table.add_row(*(f"{each[name]:,.0f}" for name in columns))
    console.print(table)
    if len(memory) > _WARM:
        # The first part fills caches.
        first, last = memory[_WARM], memory[-1]
        thousands = (last["ticks"] - first["ticks"]) / 1e3
        for name, text in (("daemon_mb", "daemon"), ("code_server_mb", "code server")):
            grown = (last[name] - first[name]) / thousands
            console.print(f"{text}: {grown:+.3f} MB in a thousand ticks")


if __name__ == "__main__":
    main()
