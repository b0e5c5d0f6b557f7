"""The wheel in environments that have nothing else of ours, with old and new dependencies.

    python -m tests.almanac.packaging.clean_environments [--only NAME] [--home HOME]

For each environment: a new virtual environment in a temporary folder, the wheel with its
dependencies from the package index, `smoke.py`, the command `almanac`, and the cookbook, in a
folder with a `pipeline.py` and an `assets` of the user. Needs a package index. Exit code 1 if any
environment fails; one whose Python this machine lacks is not run. Belongs here: making the
environments and running in them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.almanac.cookbook.home import make_home
from tests.almanac.packaging.wheel import ROOT, folder_of_a_user, make_wheel
from tests.hangs import HANGS_AFTER_S

_SMOKE: Final = Path(__file__).with_name("smoke.py")


@dataclass(frozen=True, slots=True)
class Environment:
    """Requirements beside the wheel, and the Python, None for that of this checkout."""

    requirements: tuple[str, ...]
    extra: str = ""
    python: str | None = None

    @property
    def name(self) -> str:
        python = () if self.python is None else (f"python {self.python}",)
        extra = (f"[{self.extra}]",) if self.extra else ()
        return " ".join((*self.requirements, *extra, *python))

    @property
    def base(self) -> str:
        """The program that makes the environment."""
        return sys.executable if self.python is None else f"python{self.python}"


ENVIRONMENTS: Final = (
    *(
        Environment((f"duckdb=={duckdb}.*", f"pandas=={pandas}.*"))
        for duckdb in ("1.4", "1.5", "2.0")
        for pandas in ("2", "3")
    ),
    Environment(("duckdb==1.4.0", "pandas==2.2.0", "pyarrow==17.0.0")),
    Environment(("duckdb", "pandas"), extra="study"),
    Environment(("duckdb", "pandas"), extra="polars", python="3.12"),
    Environment(("duckdb", "pandas"), python="3.13"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="environments whose name has this text")
    parser.add_argument("--home", type=Path, help="a home of the cookbook; made if not given")
    given = parser.parse_args()
    failed = 0
    with TemporaryDirectory(prefix="almanac-clean-") as name:
        folder = Path(name)
        wheel = make_wheel(folder / "dist")
        home = given.home or make_home(folder / "home").root
        user = folder_of_a_user(folder / "user")
        for number, environment in enumerate(ENVIRONMENTS):
            if given.only not in environment.name:
                continue
            if not runs(environment.base, user):
                sys.stdout.write(f"{environment.name}: not run, there is no {environment.base}\n")
                continue
            try:
                line = tried(environment, folder / f"environment-{number}", wheel, home, user)
            except (subprocess.CalledProcessError, OSError) as error:
                failed += 1
                shown = getattr(error, "stdout", "") or str(error)
                line = f"FAILED\n{shown[-3000:]}"
            sys.stdout.write(f"{environment.name}: {line}\n")
            sys.stdout.flush()
            shutil.rmtree(folder / f"environment-{number}", ignore_errors=True)
    return int(failed > 0)


def tried(environment: Environment, folder: Path, wheel: Path, home: Path, user: Path) -> str:
    """Install and run in a new environment; return what was found, in a line.

    Raises:
        CalledProcessError: a step failed; its output says why.
        OSError: a program can't be started.
    """
    run([environment.base, "-m", "venv", str(folder)], user)
    python = str(folder / "bin" / "python")
    package = f"{wheel}[{environment.extra}]" if environment.extra else str(wheel)
    run([python, "-m", "pip", "install", "-q", package, *environment.requirements], user)
    found = json.loads(run([python, str(_SMOKE), str(home)], user))
    assert found["almanac"].startswith(str(folder)), "another almanac was imported"
    almanac = str(folder / "bin" / "almanac")
    run([almanac, "changes", "--home", str(home), "--since", "2021-03-20"], user)
    run([almanac, "sql", "SELECT count(*) FROM events", "--home", str(home)], user)
    cookbook = run([python, str(ROOT / "docs" / "run_cookbook.py"), str(home)], user)
    named = ("python", "duckdb", "pandas", "pyarrow")
    versions = ", ".join(f"{name} {found[name]}" for name in named)
    return f"{versions}; {cookbook.splitlines()[-1]}"


def runs(python: str, folder: Path) -> bool:
    """Whether there is such a Python: a wrapper of its name may exist that has none to run."""
    try:
        run([python, "-c", ""], folder)
    except (subprocess.CalledProcessError, OSError):
        return False
    return True


def run(words: Sequence[str], folder: Path) -> str:
    """Run a program in the user's folder, without what this process sets for Python."""
    plain: dict[str, Any] = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "ALMANAC_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        words,
        cwd=folder,
        env=plain,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=2 * HANGS_AFTER_S,
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
