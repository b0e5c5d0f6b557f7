"""Which runs are deleted: old ones, surplus ones, and never what is needed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipeline.retention.lengths import Retention
from pipeline.retention.runs import OwnRun, spent_runs
from pipeline.runs.history import ASSET_JOB, REPORTED_FOR, EndedRun, failed_work

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KEPT = Retention(
    runs_days=30,
    failed_runs_days=60,
    runs_max=5,
    ticks_days=14,
    compute_logs_days=14,
    request_logs_days=90,
    deliveries_days=30,
)


@st.composite
def histories(draw: st.DrawFn) -> list[OwnRun]:
    hours = draw(st.lists(st.integers(0, 100 * 24), max_size=25))
    return [
        OwnRun(
            f"run-{number}",
            number,
            draw(st.sampled_from(["daily", "merge", ASSET_JOB])),
            draw(st.booleans()),
            NOW - timedelta(hours=age),
            draw(st.sampled_from([None, "open", "done"])),
            draw(st.sampled_from(["", "2026-05-01"])),
        )
        for number, age in enumerate(sorted(hours, reverse=True))
    ]


def answers(runs: list[OwnRun]) -> list[OwnRun]:
    """Return the runs that did what had failed in the last week: they stay, however many."""
    newest = {run.work: run for run in runs}
    for run in runs:
        if run.succeeded or run.job == ASSET_JOB:
            newest[ASSET_JOB, run.work[1]] = run
    failed = {run.work for run in runs if not run.succeeded and run.ended_at >= NOW - REPORTED_FOR}
    return [run for work, run in newest.items() if run.succeeded and work in failed]


def warned(runs: list[OwnRun]) -> set[str]:
    """Return the failed runs that are warned of."""
    ended = [
        EndedRun(run.run_id, run.job, run.part, run.ended_at, not run.succeeded, run.backfill)
        for run in runs
        if run.succeeded or run.ended_at >= NOW - REPORTED_FOR
    ]
    return {work.run_id for work in failed_work(ended, {"daily": "daily", "merge": "merge"})}


@given(histories())
def test_a_failure_that_was_made_good_is_not_warned_of_after_a_prune(runs: list[OwnRun]) -> None:
    spent = spent_runs(runs, KEPT, NOW)
    assert warned([run for run in runs if run not in spent]) <= warned(runs)


def test_many_merges_do_not_push_out_the_success_after_a_failure() -> None:
    days = [
        OwnRun("failed", 1, "daily", False, NOW - timedelta(hours=50), part="2026-05-29"),
        OwnRun("done", 2, "daily", True, NOW - timedelta(hours=49), part="2026-05-29"),
        OwnRun("next", 3, "daily", True, NOW - timedelta(hours=26), part="2026-05-30"),
    ]
    merges = [
        OwnRun(f"merge-{n}", 4 + n, "merge", True, NOW - timedelta(hours=20 - n)) for n in range(20)
    ]
    spent = spent_runs([*days, *merges], KEPT, NOW)
    assert "done" not in {run.run_id for run in spent}
    later = spent_runs([*days, *merges], KEPT, NOW + timedelta(days=7))
    assert "done" in {run.run_id for run in later}


@given(histories())
def test_every_run_that_goes_is_old_or_surplus_and_all_others_stay(runs: list[OwnRun]) -> None:
    spent = spent_runs(runs, KEPT, NOW)
    staying = [run for run in runs if run not in spent]
    newest = {run.job: run for run in runs}
    kept = [*newest.values(), *answers(runs)]
    for succeeded in (True, False):
        of_outcome = [run for run in staying if run.succeeded is succeeded]
        assert len([run for run in of_outcome if run not in kept]) <= KEPT.runs_max
        for run in spent:
            if run.succeeded is succeeded:
                is_old = run.ended_at < KEPT.runs_before(NOW, succeeded=succeeded)
                assert is_old or len(of_outcome) >= KEPT.runs_max
        for run in of_outcome:
            is_old = run.ended_at < KEPT.runs_before(NOW, succeeded=succeeded)
            assert not is_old or run in kept


@given(histories())
def test_the_newest_run_of_each_job_and_runs_of_open_backfills_stay(runs: list[OwnRun]) -> None:
    needed = frozenset({"open", "run-0"})
    spent = spent_runs(runs, KEPT, NOW, needed=needed)
    assert not {run.run_id for run in {run.job: run for run in runs}.values()} & {
        run.run_id for run in spent
    }
    assert all(run.backfill != "open" and run.run_id != "run-0" for run in spent)


@given(histories())
def test_the_oldest_go_first_and_a_second_prune_deletes_nothing(runs: list[OwnRun]) -> None:
    spent = spent_runs(runs, KEPT, NOW)
    assert [run.ended_at for run in spent] == sorted(run.ended_at for run in spent)
    assert spent_runs([run for run in runs if run not in spent], KEPT, NOW) == []
