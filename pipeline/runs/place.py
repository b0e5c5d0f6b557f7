"""Where the records of the Dagster instance in use are: the home's databases, or a company's.

The home's own instance is `dagster/` in the home; with `DAGSTER_HOME` another one is used, which
may be shared with other code locations. Belongs here: reading `dagster.yaml` for the storage,
without Dagster. Does not: opening the instance (pipeline/instance).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from pipeline.runs.generated import is_generated
from warehouse.errors import RunRecordsUnusable
from warehouse.home import Home

CONFIG: Final = "dagster.yaml"
LOCATION: Final = "almanac"
"""The name of the code location in the generated `workspace.yaml`."""
REPOSITORY: Final = f"__repository__@{LOCATION}"
"""The value of Dagster's tag of a run with its repository and code location."""
_STORAGES: Final = ("run_storage", "event_log_storage", "schedule_storage", "instance_class")


@dataclass(frozen=True, slots=True)
class InstancePlace:
    """The folder of the instance, and that of its SQLite databases; None for another storage."""

    folder: Path
    databases: Path | None
    is_own: bool
    """Whether the records are the home's own: in its folder, so that no other home has them."""

    @property
    def storage(self) -> str:
        return "SQLite" if self.databases is not None else "another storage than SQLite"


def place_of(home: Home) -> InstancePlace:
    """Return where the records of the instance in use are.

    Raises:
        RunRecordsUnusable: its `dagster.yaml` can't be read.
    """
    folder = home.instance_folder.resolve()
    own = home.dagster.resolve()
    databases = _databases(folder)
    return InstancePlace(folder, databases, is_own=folder == own and databases == own)


def _databases(folder: Path) -> Path | None:
    """Return the folder of the SQLite databases, as Dagster determines it; None for others."""
    path = folder / CONFIG
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return folder
    except (OSError, UnicodeDecodeError) as error:
        raise RunRecordsUnusable(f"{path} can't be read: {error}. Nothing was changed.") from error
    if is_generated(text):
        return folder
    try:
        config: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        what = " ".join(str(error).split())
        raise RunRecordsUnusable(
            f"{path} is not valid YAML: {what}. Nothing was changed; correct the file."
        ) from error
    if not isinstance(config, dict) or any(name in config for name in _STORAGES):
        return None
    if "storage" not in config:
        return folder
    match config["storage"]:
        case {"sqlite": {"base_dir": str(base)}}:
            return Path(base).resolve()
    return None
