"""The options and the output of benchmarks: a table for people, JSON for programs."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from bench.children import Measured


def parse_arguments(what: str, **sizes: int) -> argparse.Namespace:
    """Return the arguments of a benchmark; each size is an option with its default."""
    parser = argparse.ArgumentParser(description=what)
    for name, default in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="where to work; else a temporary folder")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def show(
    title: str,
    measured: dict[str, Measured],
    ours: str | None,
    bars: dict[str, str],
    into: Path | None,
) -> None:
    """Print the seconds of each side, and the ratio of ours to it, if there is ours."""
    console = Console(highlight=False)
    console.width = max(console.width, 120)
    load = os.getloadavg()[0]
    console.print(f"{title}   DuckDB {duckdb.__version__}, load average {load:.2f} at the end")
    ratio_column = [] if ours is None else ["ours is x times that"]
    table = Table("", "seconds", *ratio_column, "cpu s", "peak MB", "figures")
    for name, child in measured.items():
        ratios = []
        if ours is not None:
            mine = measured[ours].seconds
            ratios = ["" if name == ours else f"{mine / child.seconds:.2f}"]
        figures = ", ".join(
            f"{key} {_short(v)}" for key, v in child.figures.items() if key != "seconds"
        )
        cpu = f"{child.cpu_s:.2f}" if child.cpu_s else ""
        peak = f"{child.peak_mb:,.0f}"
        table.add_row(name, f"{child.seconds:.2f}", *ratios, cpu, peak, figures)
    console.print(table)
    for what, text in bars.items():
        console.print(f"{what}: {text}")
    if into is not None:
        into.write_text(json.dumps(_record(title, measured, bars), indent=1))


def _record(title: str, measured: dict[str, Measured], bars: dict[str, str]) -> dict[str, Any]:
    figures = {
        name: {**child.figures, "process_cpu": child.cpu_s, "peak_mb": child.peak_mb}
        for name, child in measured.items()
    }
    machine = {"python": sys.version.split()[0], "machine": platform.machine()}
    return {"title": title, "figures": figures, "bars": bars, **machine}


def _short(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
