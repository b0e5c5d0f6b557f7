"""The component with which a code location adopts Almanac: one `defs.yaml` (docs/composing.md)."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

import dagster as dg
from pydantic import BeforeValidator, ConfigDict, Field

from assets.layout import EVERYTHING_ON
from pipeline.build import build_definitions, make_layout
from pipeline.home_location import locate_home
from pipeline.settings import read_settings
from resources.service_clock import service_time
from warehouse.clock import utc_now

_NAME: Final = "[A-Za-z][A-Za-z0-9_]*"
_OWNER: Final = r"^(team:[A-Za-z0-9_-]+|[\w.+-]+@[\w-]+(\.[\w-]+)+)$"
_EXECUTORS: Final[Mapping[str, dg.ExecutorDefinition | None]] = {
    "in_process": dg.in_process_executor,
    "multiprocess": dg.multiprocess_executor,
    "deployment": None,
}


def _split(separator: str, value: Any) -> Any:
    return value.split(separator) if isinstance(value, str) else value


class AlmanacComponent(dg.Component, dg.Model, dg.Resolvable):
    """A home of Almanac: its assets, checks, jobs, schedules, sensors and resources."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    home: str | None = None
    """The home: the folder of landing and warehouse. Default: ALMANAC_HOME."""
    environment: Annotated[Mapping[str, str], Field(repr=False)] = {}
    """Settings by the name of the environment variable that has the value, such as
    `api_key: CATALOG_KEY`. The others are read from `ALMANAC_…`."""
    key_prefix: Annotated[
        Sequence[Annotated[str, Field(pattern=rf"^{_NAME}$")]],
        BeforeValidator(partial(_split, "/")),
    ] = ()
    """A prefix of asset keys, its parts separated by `/`. It is also in the names of jobs,
    schedules, sensors, pools and resources: `almanac_daily`."""
    group_prefix: Annotated[str, Field(pattern=rf"^({_NAME})?$")] = ""
    """A prefix of asset groups."""
    owners: Sequence[Annotated[str, Field(pattern=_OWNER)]] = ("team:almanac",)
    """The owners of all assets: e-mail addresses or teams."""
    automation: Annotated[Sequence[str], BeforeValidator(partial(_split, ","))] = (EVERYTHING_ON,)
    """The schedules and sensors that are on at first, by name without prefix; `all` or `none`. The
    Dagster UI switches each."""
    executor: Literal["in_process", "multiprocess", "deployment"] = "in_process"
    """How steps run, also those of other assets in the code location: `in_process`, `multiprocess`,
    or `deployment`, as the other definitions say."""

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Return the definitions of the home."""
        settings = read_settings(self.home, self.environment)
        if settings.dagster_home is None:
            warnings.warn(
                "DAGSTER_HOME is not set, so Dagster forgets runs and switched sensors when it "
                "ends. Set it to a folder, or use `almanac ui`.",
                stacklevel=1,  # Dagster loads this several times; one place is shown once.
            )
        home = locate_home(settings)
        layout = make_layout(
            settings,
            home,
            service_time(home.state, utc_now)(),
            key_prefix=tuple(self.key_prefix),
            group_prefix=self.group_prefix,
            owners=tuple(self.owners),
            automation=tuple(self.automation),
            executor=_EXECUTORS[self.executor],
        )
        return build_definitions(settings, layout=layout)
