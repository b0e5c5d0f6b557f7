"""The settings of retention: how long the records of runs, and logs, are kept."""

from pydantic import BaseModel, Field


class RetentionSettings(BaseModel):
    """What `almanac prune`, and the job that runs it every night, leave."""

    keep_runs_days: int = Field(
        default=30,
        ge=1,
        description="Days after their end that successful runs are kept in Dagster. A run stays "
        "longer while it has the latest materialisation of an asset or partition.",
    )
    keep_failed_runs_days: int = Field(
        default=60, ge=1, description="The same for failed and canceled runs."
    )
    keep_runs: int = Field(
        default=100,
        ge=1,
        description="The number of successful runs kept of each job, and of failed ones. Older "
        "runs are deleted, however young. A run takes about 0.4 MB.",
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
        "keeps it.",
    )
