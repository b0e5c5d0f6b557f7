"""The settings of retention: how long the records of runs, and logs, are kept."""

from pydantic import BaseModel, Field


class RetentionSettings(BaseModel):
    """What `almanac prune`, and the job that runs it every night, leave."""

    keep_runs_days: int = Field(
        default=30,
        ge=1,
        description="Days after their end that runs which succeeded are kept in Dagster. The "
        "latest materialisation of each partition stays without its run.",
    )
    keep_failed_runs_days: int = Field(
        default=60, ge=1, description="As that, for runs that failed or were canceled."
    )
    keep_runs: int = Field(
        default=200,
        ge=1,
        description="At most so many runs that succeeded are kept, and as many that failed, "
        "however young. A run takes about 0.4 MB.",
    )
    keep_output_days: int = Field(
        default=14, ge=1, description="Days that captured output of runs is kept."
    )
    keep_ticks_days: int = Field(
        default=14, ge=1, description="Days that ticks of schedules and sensors are kept."
    )
    keep_request_logs_days: int = Field(
        default=90,
        ge=1,
        description="Days that request logs and files which were set aside are kept.",
    )
    keep_deliveries_days: int = Field(
        default=30,
        ge=0,
        description="Days that the inbox keeps the body of a delivery that was landed. Landing "
        "keeps it for ever.",
    )
