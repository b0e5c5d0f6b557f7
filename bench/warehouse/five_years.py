"""`python -m bench.warehouse.five_years`: replay, a day and a delivery in a home of five years.

50,000 events with 0.7 million versions, from an export each week. Seconds, memory and added bytes.
"""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import Measured, measure, run_apart
from bench.report import parse_arguments, show
from bench.warehouse.exports import known_at
from bench.warehouse.homes import ExportPlan, deliver
from warehouse.home import Home

_CHILD = "bench.warehouse.homes"


def measure_bytes(home: Home) -> float:
    """Return the MB of all files of a home; hard links count once."""
    files = [path.stat() for path in home.root.rglob("*") if path.is_file()]
    return sum({entry.st_ino: entry.st_size for entry in files}.values()) / 1e6


def main() -> None:
    size = parse_arguments(
        __doc__,
        **{"events": 50_000, "versions": 700_000, "coins": 200, "days": 1_825, "exports": 260},
        **{"rounds": 3},
    )
    plan = ExportPlan(size.events, size.versions, size.coins, size.days, size.exports)
    with TemporaryDirectory(prefix="almanac-five-years-", dir=size.folder) as temporary:
        home = Home(Path(temporary) / "home")
        run_apart(plan.land_all, home)
        landed = measure_bytes(home)
        replayed = measure(_CHILD, "replay", str(home.root))
        best: dict[str, Measured] = {"replay": replayed}
        before = replayed_mb = measure_bytes(home)
        for number in range(size.rounds):
            for name in ("a day", "one delivery"):
                if name == "a day":
                    run_apart(plan.land, home, plan.count + number)
                else:
                    at = known_at(plan.count + number, first_day=plan.first_day, every=plan.every)
                    deliver(home, number, at=at + timedelta(hours=1))
                run = measure(_CHILD, "merge", str(home.root))
                run.figures["added MB"] = measure_bytes(home) - before
                before += run.figures["added MB"]
                if name not in best or run.seconds < best[name].seconds:
                    best[name] = run
        sizes = {
            "MB of landing": f"{landed:,.0f}",
            "MB of all other files after the replay": f"{replayed_mb - landed:,.0f}",
            "MB of warehouse.duckdb at the end": f"{home.warehouse.stat().st_size / 1e6:,.0f}",
        }
        title = f"five years: {size.events:,} events, {size.versions:,} versions"
        show(title, best, None, sizes, size.json)


if __name__ == "__main__":
    main()
