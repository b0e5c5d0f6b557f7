"""The results as tables, for people."""

from rich.console import Console
from rich.table import Table

from bench.server.load import CONNECTIONS
from bench.server.process import Cores
from bench.server.race import OPEN_RATE_PER_S, Lap
from bench.server.results import Bar, Results
from bench.server.slow import COUNT


def show(results: Results, cores: Cores, console: Console) -> None:
    _show_settings(results, cores, console)
    _show_laps(results, console)
    _show_exports(results, console)
    _show_slow(results, console)
    _show_bars(results.bars(), console)


def _show_settings(results: Results, cores: Cores, console: Console) -> None:
    table = _table("Each server alone", "server", "how it was run")
    for name, settings in results.settings.items():
        table.add_row(name, settings)
    console.print(table)
    where = f"Server on core {cores.server}, load generator on core {cores.load}"
    if cores.server == cores.load:
        where += ": THE SAME ONE, so these figures say little"
    ceilings = ", ".join(
        f"{per_s:,.0f}/s at {size:,} bytes" for size, per_s in results.ceiling_per_s.items()
    )
    console.print(f"{where}. The load generator's own ceiling: {ceilings}.")
    console.print(f"Load average of the machine before the run: {results.load_average:.2f}.\n")


def _show_laps(results: Results, console: Console) -> None:
    for workload in dict.fromkeys(lap.workload for lap in results.laps):
        table = _table(
            f"Distinct requests: {workload}; {CONNECTIONS} connections, closed loop",
            *("server", ">sent", ">per s", ">ours is", ">p50 ms", ">p99 ms"),
            *(f">p99 at {OPEN_RATE_PER_S:g}/s", ">bytes", ">CPU µs", ">core"),
        )
        ours = results.lap("ours", workload)
        for lap in results.laps:
            if lap.workload == workload:
                table.add_row(*_lap_cells(lap, ours))
        console.print(table)


def _lap_cells(lap: Lap, ours: Lap) -> tuple[str, ...]:
    return (
        lap.server,
        f"{lap.requests:,}",
        f"{lap.per_s:,.0f}",
        "" if lap is ours else f"{ours.per_s / lap.per_s:.2f} ×",
        f"{lap.p50_ms:.2f}",
        f"{lap.p99_ms:.2f}",
        "too slow" if lap.open_p99_ms is None else f"{lap.open_p99_ms:.2f}",
        f"{lap.body_bytes:,.0f}",
        f"{1e6 * lap.cpu / lap.per_s:,.0f}",
        f"{lap.cpu:.0%}",
    )


def _show_exports(results: Results, console: Console) -> None:
    table = _table(
        "Export; RSS of the server in MiB, and its growth from a tenth of the rows on",
        *("what", ">rows", ">rows/s", ">seconds", ">MiB sent", ">RSS before", ">peak"),
        ">growth",
    )
    for export in results.exports:
        table.add_row(
            export.name,
            f"{export.rows:,}",
            f"{export.rows_per_s:,.0f}",
            f"{export.elapsed_s:.1f}",
            f"{export.body_mib:.0f}",
            f"{export.rss_start_mib:.0f}",
            f"{export.rss_peak_mib:.0f}",
            f"{export.growth_mib:.1f}",
        )
    console.print(table)


def _show_slow(results: Results, console: Console) -> None:
    closes = _table("The server closes a slow connection", "manner", ">after seconds")
    for manner, seconds in results.closed_after_s.items():
        closes.add_row(
            manner, f"not in {results.given_up_after_s:g}" if seconds is None else f"{seconds:.1f}"
        )
    console.print(closes)
    felt = results.felt
    table = _table(
        f"Ordinary requests at {felt.rate_per_s:g}/s beside {COUNT} slow connections",
        *("", ">p50 ms", ">p99 ms"),
    )
    table.add_row("without", f"{felt.p50_without_ms:.2f}", f"{felt.p99_without_ms:.2f}")
    table.add_row("with", f"{felt.p50_with_ms:.2f}", f"{felt.p99_with_ms:.2f}")
    table.caption = (
        f"{felt.held} held at the end of a round, {felt.opened:,} opened in it, "
        f"{felt.refused} refused"
    )
    console.print(table)


def _show_bars(bars: list[Bar], console: Console) -> None:
    table = _table("Bars", "what", ">found", ">bar", "")
    for bar in bars:
        wanted = "" if bar.least is None else f"≥ {bar.least:g}"
        wanted = wanted if bar.most is None else f"≤ {bar.most:g}"
        verdict = "[green]met" if bar.met else "[bold red]missed"
        table.add_row(bar.what, f"{bar.found:.2f}", wanted, verdict if wanted else "no bar")
    console.print(table)


def _table(title: str, *columns: str) -> Table:
    """Return an empty table; a name that starts with > is a column of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left"
        )
    return table
