"""Which runs are deleted: old ones, surplus ones, and never what is needed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipeline.retention.lengths import Retention
from pipeline.retention.runs import OwnRun, spent_runs

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KEPT = Retention(
    runs_days=30,
    failed_runs_days=60,
    runs_max=5,
    ticks_days=14,
    compute_logs_days=14,
    request_logs_days=90,
)


@st.composite
def histories(draw: st.DrawFn) -> list[OwnRun]:
    hours = draw(st.lists(st.integers(0, 100 * 24), max_size=25))
    return [
        OwnRun(
            f"run-{number}",
            number,
            draw(st.sampled_from(["daily", "merge"])),
            draw(st.booleans()),
            NOW - timedelta(hours=age),
            draw(st.sampled_from([None, "open", "done"])),
        )
        for number, age in enumerate(sorted(hours, reverse=True))
    ]


@given(histories())
def test_every_run_that_goes_is_old_or_surplus_and_all_others_stay(runs: list[OwnRun]) -> None:
    spent = spent_runs(runs, KEPT, NOW)
    staying = [run for run in runs if run not in spent]
    newest = {run.job: run for run in runs}
    for succeeded in (True, False):
        of_outcome = [run for run in staying if run.succeeded is succeeded]
        assert len([run for run in of_outcome if newest[run.job] != run]) <= KEPT.runs_max
        for run in spent:
            if run.succeeded is succeeded:
                is_old = run.ended_at < KEPT.runs_before(NOW, succeeded=succeeded)
                assert is_old or len(of_outcome) >= KEPT.runs_max
        for run in of_outcome:
            is_old = run.ended_at < KEPT.runs_before(NOW, succeeded=succeeded)
            assert not is_old or newest[run.job] == run


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
