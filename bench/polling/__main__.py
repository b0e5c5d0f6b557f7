"""`python -m bench.polling`: how old changes are when polls see them, under a quota.

Simulated months of the sandbox's world: our planner (the production function, a fresh home each
month), one fixed interval, the best two fixed windows with hindsight, and the optimum for the true
rates. All have the same budget: the quota less a reserve of a fifth and the day's jobs, or a share
of that. Held-out seeds; the constants of the planner were tuned on seeds 1 to 3.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.polling.ages import Probe, ages, probes
from bench.polling.month import DISTANCES, Simulation, SimulationResult, distance_name
from bench.polling.optimum import optimum
from bench.polling.planner import PlannerPolicy
from bench.polling.policies import Fixed, best_two_windows, one_interval
from bench.polling.truth import TrueMonth, true_month
from catalog.contract.plans import PLANS
from catalog.sandbox.world.world import World

HELD_OUT: Final = (101, 102, 103)
MONTHS: Final = {101: 3, 102: 7, 103: 11}
"""One month of 2026 for each seed: months differ in length and in where their quarters end."""
SHARES: Final = (1.0, 0.1, 0.01)
ONE, TWO, OURS = "one interval", "two windows", "planner"
BAR: Final = 0.8
_COUNTED: Final = ("requests", "budget")
_WIDTH: Final = 150


@dataclass(frozen=True, slots=True)
class Figure:
    """The figures of a policy in a month. Ages are minutes, without the service's own delay.

    `mean` and `p95` are over many instants of each change, `as_it_came` over the changes alone.
    """

    plan: str
    seed: int
    share: float
    policy: str
    budget: int
    requests: int
    changes: int
    mean: float
    p95: float
    as_it_came: float
    by_distance: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Standard alone, one seed")
    parser.add_argument("--plans", nargs="*", default=["standard", "pro"], choices=list(PLANS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(HELD_OUT))
    parser.add_argument("--shares", nargs="*", type=float, default=list(SHARES))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    size = parser.parse_args()
    plans, seeds = (["standard"], size.seeds[:1]) if size.quick else (size.plans, size.seeds)
    console, figures = Console(highlight=False, width=_WIDTH), []
    for plan in plans:
        for seed in seeds:
            starts = datetime(2026, MONTHS.get(seed, 3), 1, tzinfo=UTC)
            month = true_month(World(seed), PLANS[plan], starts)
            for share in size.shares:
                figures += _month(month, seed, share)
                console.print(f"{plan}, seed {seed}, {share:.0%} of the budget: done")
    _show(console, figures)
    if size.json is not None:
        size.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def _month(month: TrueMonth, seed: int, share: float) -> list[Figure]:
    """Simulate a month with every policy at one budget."""
    quota = month.plan.monthly_quota or 0
    reserve = quota // 5
    daily = Simulation(month).run(Fixed(month, (), 1.0)).daily_requests
    whole = quota - reserve - daily
    budget = int(whole * share)
    found = probes(month)
    cap = None if share == 1 else budget
    two = best_two_windows(month, budget, found)
    result = {
        ONE: one_interval(month, budget),
        f"{TWO}, {two.label}": two.result,
        **optimum(month, budget),
        OURS: Simulation(month).run(PlannerPolicy(month, quota=quota, reserve=reserve, cap=cap)),
    }
    # More would exceed the quota; the optimum may go a little over, in its favour.
    assert result[OURS].requests <= budget
    assert result[OURS].requests + result[OURS].daily_requests + reserve <= quota
    return [
        _figure(month, seed, share, name, budget, policy_run, found)
        for name, policy_run in result.items()
    ]


def _figure(
    month: TrueMonth,
    seed: int,
    share: float,
    name: str,
    budget: int,
    result: SimulationResult,
    found: Sequence[Probe],
) -> Figure:
    seen = ages(month, found, result.pulls)
    by_distance: dict[str, list[float]] = defaultdict(list)
    for probe, age in zip(found, seen, strict=True):
        by_distance[distance_name(probe.distance)].append(age)
    return Figure(
        plan=month.plan.name,
        seed=seed,
        share=share,
        policy=name,
        budget=budget,
        requests=result.requests,
        changes=len(result.all_ages()),
        mean=_mean(seen) / 60,
        p95=sorted(seen)[int(0.95 * len(seen))] / 60,
        as_it_came=result.mean_age() / 60,
        by_distance={name: _mean(some) / 60 for name, some in by_distance.items()},
    )


def _show(console: Console, figures: Sequence[Figure]) -> None:
    """Print the means over the seeds; the JSON has each seed."""
    for plan in dict.fromkeys(figure.plan for figure in figures):
        table = Table(
            *("budget", "policy", "requests", "mean", "p95", "as it came", *DISTANCES),
            title=f"{plan}: minutes until a change is seen, by days from today to the event",
        )
        for share in dict.fromkeys(figure.share for figure in figures if figure.plan == plan):
            some = [figure for figure in figures if (figure.plan, figure.share) == (plan, share)]
            for policy in dict.fromkeys(_policy(figure) for figure in some):
                table.add_row(
                    *_row(policy, [figure for figure in some if _policy(figure) == policy])
                )
            table.add_section()
        console.print(table)
        for share in dict.fromkeys(figure.share for figure in figures if figure.plan == plan):
            some = [figure for figure in figures if (figure.plan, figure.share) == (plan, share)]
            console.print(_judged(plan, some))


def _policy(figure: Figure) -> str:
    return TWO if figure.policy.startswith(TWO) else figure.policy


def _row(policy: str, figures: Sequence[Figure]) -> list[str]:
    first = figures[0]
    ages_ = [
        _mean(getattr(figure, name) for figure in figures) for name in ("mean", "p95", "as_it_came")
    ]
    far = [
        _mean(figure.by_distance[name] for figure in figures) if name in first.by_distance else None
        for name in DISTANCES
    ]
    requests, budget = (_mean(getattr(figure, name) for figure in figures) for name in _COUNTED)
    counted = (f"{first.share:.0%}", policy, f"{requests:,.0f} of {budget:,.0f}")
    return [*counted, *("" if age is None else f"{age:.2f}" for age in (*ages_, *far))]


def _judged(plan: str, figures: Sequence[Figure]) -> str:
    """Return, for one plan and budget, whether the bars are met, seed by seed and over all."""
    gains, optima, behind = [], [], []
    for seed in dict.fromkeys(figure.seed for figure in figures):
        means = {figure.policy: figure.mean for figure in figures if figure.seed == seed}
        two = next(mean for name, mean in means.items() if name.startswith(TWO))
        best = min(mean for name, mean in means.items() if name.startswith(("Cho", "Azar")))
        gains.append(1 - means[OURS] / means[ONE])
        optima.append(1 - best / means[ONE])
        behind.append(means[OURS] / two - 1)
    gained, possible = _mean(gains), _mean(optima)
    share = f"{gained / possible:.0%}" if possible > 0 else "all"
    return (
        f"{plan}, {figures[0].share:.0%}: mean age {gained:.1%} below one interval, the optimum "
        f"{possible:.1%}: {share} of its gain (bar {BAR:.0%}); against two windows "
        + ", ".join(f"{share_behind:+.1%}" for share_behind in behind)
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


if __name__ == "__main__":
    main()
