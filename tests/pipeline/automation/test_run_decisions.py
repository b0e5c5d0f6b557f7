"""Run records as the sensors read them."""

from pathlib import Path

import dagster as dg

from pipeline.automation.run_decisions import find_instance
from pipeline.instance import instance_of
from warehouse.home import Home


def test_the_sensors_of_a_process_share_one_open_instance(tmp_path: Path) -> None:
    with instance_of(Home(tmp_path)) as instance:
        ticks = [
            dg.SensorEvaluationContext(
                instance_ref=instance.get_ref(),
                last_tick_completion_time=None,
                last_run_key=None,
                cursor=None,
                log_key=None,
                repository_name=None,
            )
            for _ in range(2)
        ]
        first, second = (find_instance(tick) for tick in ticks)
        assert first is second
        assert first.get_runs() == []
        first.dispose()
