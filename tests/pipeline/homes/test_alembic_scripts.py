"""An instance that is opened often, as for each tick, keeps nothing of an opening."""

import atexit
from pathlib import Path

import dagster as dg

from pipeline.instance import instance_of
from pipeline.runs.alembic_scripts import read_scripts_once
from warehouse.home import Home


def test_a_code_server_that_opens_the_instance_for_each_tick_keeps_nothing_of_it(
    tmp_path: Path,
) -> None:
    def opened(instance: dg.DagsterInstance) -> int:
        for _ in range(3):
            with dg.DagsterInstance.from_ref(instance.get_ref()) as again:
                assert again.get_runs() == []
        return atexit._ncallbacks()

    read_scripts_once()
    with instance_of(Home(tmp_path)) as instance:
        assert opened(instance) == opened(instance)
