"""The component with which a code location adopts Almanac: one `defs.yaml` (docs/composing.md)."""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import dagster as dg
from pydantic import BeforeValidator, ConfigDict, Field

from almanac.core.timestamps import utc_now
from pipeline.build import build_definitions, make_layout
from pipeline.home_location import locate_home
from pipeline.settings import read_settings
from resources.service_clock import service_time

_EXECUTORS: Final[Mapping[str, dg.ExecutorDefinition | None]] = {
    "in_process": dg.in_process_executor,
    "multiprocess": dg.multiprocess_executor,
    "deployment": None,
}
_Texts = Annotated[
    Sequence[str],
    BeforeValidator(lambda given: re.split("[/,] *", given) if isinstance(given, str) else given),
]


class AlmanacComponent(dg.Component, dg.Model, dg.Resolvable):
    """A home of Almanac: its assets, checks, jobs, schedules, sensors and resources."""

    model_config = ConfigDict(hide_input_in_errors=True, use_attribute_docstrings=True)

    home: str | None = None
    """The home: the folder of landing and warehouse. Default: ALMANAC_HOME."""
    environment: Annotated[Mapping[str, str], Field(repr=False)] = {}
    """Settings by the name of the environment variable that has the value, such as
    `api_key: CATALOG_KEY`. The others are read from `ALMANAC_…`."""
    key_prefix: _Texts = ()
    """A prefix of asset keys, its parts separated by `/`. It is also in the names of jobs,
    schedules, sensors, pools and resources: `almanac_daily`."""
    group_prefix: str = ""
    """A prefix of asset groups."""
    owners: _Texts = ("team:almanac",)
    """The owners of all assets: e-mail addresses or teams."""
    automation: _Texts = ("all",)
    """The schedules and sensors that are on at first, by name without prefix; `all` or `none`. The
    Dagster UI switches each."""
    executor: Literal["in_process", "multiprocess", "deployment"] = "in_process"
    """How steps run, also those of other assets in the code location: `in_process`, `multiprocess`,
    or `deployment`, as the other definitions say."""

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Return the definitions of the home."""
        settings = read_settings(self.home, self.environment)
        if settings.dagster_home is None:
            # Dagster loads this several times; Python shows a warning of one place once.
            warnings.warn("DAGSTER_HOME is not set: all runs are lost at the end.", stacklevel=1)
        home, executor = locate_home(settings), _EXECUTORS[self.executor]
        given = self.model_dump(include={"key_prefix", "group_prefix", "owners", "automation"})
        now = service_time(home.state, utc_now)()
        layout = make_layout(home, now, executor=executor, **given)
        return build_definitions(settings, layout=layout)
