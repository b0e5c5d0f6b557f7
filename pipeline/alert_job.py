"""The job that tells what began and what is over: one step, in its own process.

It finds out anew what there is to tell, so that nothing of it, nor the address, is in its config.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import dagster as dg

from pipeline.alert_post import AlertNotPosted, post_changes
from pipeline.run_presence import announce
from pipeline.settings import Settings, SettingsError
from warehouse.home import Home

ALERT: Final = "alert"
_RETRIES: Final = 3
_RETRY_WAIT_S: Final = 20.0


def alert_job(
    settings: Settings,
    home: Home,
    clock: Callable[[], datetime],
    *,
    retry_wait_s: float = _RETRY_WAIT_S,
) -> dg.JobDefinition:
    """Return the job. After its retries it fails, and the sensor asks for another run."""

    @dg.op(
        description="Posts the warnings that began, or are over, and notes that they were told.",
        retry_policy=dg.RetryPolicy(
            max_retries=_RETRIES, delay=retry_wait_s, backoff=dg.Backoff.EXPONENTIAL
        ),
    )
    def post_warnings(context: dg.OpExecutionContext) -> None:
        announce(home, context.run_id)
        try:
            told = post_changes(settings, home, clock())
        except AlertNotPosted as error:
            raise dg.Failure(str(error)) from error
        except SettingsError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        context.log.info("Told: %s", " ".join(told.kinds) or "nothing, it was told already")

    @dg.job(
        name=ALERT,
        description="Posts warnings to the address of the settings. No request of the service.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        post_warnings()

    return job
