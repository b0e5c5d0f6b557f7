"""The settings of the Dagster deployment in which the definitions stand."""

from pydantic import BaseModel, Field

from pipeline.configuration.types import KeyPrefix, NamePrefix


class DeploymentSettings(BaseModel):
    """Prefixes, so that several homes and definitions of others fit into one deployment."""

    key_prefix: KeyPrefix = Field(
        default=(),
        description="A prefix of all asset keys, its parts separated by `/`. Default: none.",
    )
    group_prefix: NamePrefix = Field(
        default="", description="A prefix of the names of asset groups. Default: none."
    )
    name_prefix: NamePrefix = Field(
        default="",
        description="A prefix of the names of jobs, schedules, sensors, ops, pools and resources, "
        "such as `almanac_`. Default: none.",
    )
