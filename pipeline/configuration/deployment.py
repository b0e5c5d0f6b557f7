"""The settings of the Dagster deployment in which the definitions stand."""

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, Field, PrivateAttr
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.configuration.types import CommaList, KeyPrefix, NamePrefix, Owners, Place

Executor = Literal["in_process", "multiprocess", "deployment"]
EVERYTHING_ON: Final = "all"
NOTHING_ON: Final = "none"


class DeploymentSettings(BaseModel):
    """How the definitions fit into a deployment that others share."""

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
    executor: Executor = Field(
        default="in_process",
        description="How steps of a run are executed: `in_process`; `multiprocess`, each step in a "
        "process of its own, which takes seconds to start; or `deployment`, as the definitions say "
        "with which these are merged. Only with the first are killed runs noticed immediately.",
    )
    owners: Owners = Field(
        default=("team:almanac",),
        description="The owners of all assets, separated by commas: e-mail addresses, or names of "
        "teams such as `team:data`. Default: `team:almanac`.",
    )
    automation: CommaList = Field(
        default=(EVERYTHING_ON,),
        description="The schedules and sensors that are on at first, by their names without "
        "prefix, separated by commas; `all` or `none`. The Dagster UI switches each on and off.",
    )
    _dagster_home: Path | None = PrivateAttr(default=None)

    @property
    def dagster_home(self) -> Path | None:
        """The folder of the Dagster instance to use (`DAGSTER_HOME`), None for the home's own."""
        return self._dagster_home

    def is_on(self, name: str) -> bool:
        """Whether a schedule or sensor is on until a person switches it."""
        return EVERYTHING_ON in self.automation or name in self.automation


class DagsterEnvironment(BaseSettings):
    """What Dagster itself takes from the environment, and never from a `.env` of ours: a
    `dagster.yaml` names code to execute."""

    model_config = SettingsConfigDict(env_prefix="DAGSTER_", extra="ignore")

    home: Place | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the instance, absolute; None if it is not set."""
        return None if self.home in (None, Path()) else self.home.absolute()
