"""`python -m bench.year`: the records of a year, and how fast Dagster's pages are at its end.

    python -m bench.year [--days 365] [--news 12] [--failures 2] [--folder DIR] [--json FILE]

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
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.report import parse_arguments
from bench.year.pages import Asked
from bench.year.simulation import DayEnd, Year

BAR_MB: Final = 200
BAR_S: Final = 2.0
_SHOWN_DAYS: Final = 30


def main() -> None:
    arguments = parse_arguments(__doc__ or "", days=365, news=12, failures=2)
    console = Console(highlight=False)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        year = Year(Path(folder), news=arguments.news, failures=arguments.failures)
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
        if arguments.json is not None:
            pages = {name: [asdict(each) for each in asked] for name, asked in times.items()}
            figures = {"pages": pages, "days": [asdict(end) for end in ends]}
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


if __name__ == "__main__":
    main()
