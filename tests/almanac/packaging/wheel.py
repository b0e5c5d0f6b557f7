"""The wheel of the package, made from this checkout without a network, and a folder of a user."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.hangs import HANGS_AFTER_S

ROOT: Final = Path(__file__).parents[3]


def make_wheel(folder: Path) -> Path:
    """Return a new wheel in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def folder_of_a_user(folder: Path) -> Path:
    """Return a folder with modules of a user that have the names of our application's packages.

    Importing any of them is an error, as if `almanac` had taken them for its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("application", "pipeline", "warehouse", "catalog"):
        (folder / f"{name}.py").write_text('raise RuntimeError("the module of the user")\n')
    for name in ("assets", "resources"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text('raise RuntimeError("the user\'s folder")\n')
    return folder
