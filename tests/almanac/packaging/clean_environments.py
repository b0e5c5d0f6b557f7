"""The wheel in environments that have nothing else of ours, with old and new dependencies.

    python -m tests.almanac.packaging.clean_environments [--only NAME]

For each environment: a new virtual environment in a temporary folder, the wheel with its
dependencies from the package index, `smoke.py` and the command `almanac`, in a folder with modules
of the user. Exit code 1 if any environment fails; one whose Python this machine lacks is not run.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.almanac.packaging.wheel import folder_of_a_user, make_wheel
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.answers.handmade import Known

_SMOKE: Final = Path(__file__).with_name("smoke.py")
_PLAIN: Final = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "ALMANAC_", "VIRTUAL_ENV"))
}
# The Python, the extra, and requirements beside the wheel.
ENVIRONMENTS: Final[Sequence[tuple[str, str, str]]] = (
    *(
        (sys.executable, "", f"duckdb=={duckdb}.* pandas=={pandas}.*")
        for duckdb in ("1.4", "1.5", "2.0")
        for pandas in ("2", "3")
    ),
    (sys.executable, "", "duckdb==1.4.0 pandas==2.2.0 pyarrow==17.0.0"),
    (sys.executable, "[study]", "duckdb pandas"),
    ("python3.12", "[polars]", "duckdb pandas"),
    ("python3.13", "", "duckdb pandas"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="environments whose name has this text")
    only, failed = parser.parse_args().only, 0
    with TemporaryDirectory(prefix="almanac-clean-") as name:
        folder = Path(name)
        wheel, user = make_wheel(folder / "dist"), folder_of_a_user(folder / "user")
        home = str(publish(folder / "home"))
        for base, extra, requirements in ENVIRONMENTS:
            shown = f"{Path(base).name} {extra} {requirements}"
            if only not in shown or not starts(base):
                sys.stdout.write(f"{shown}: not run\n")
                continue
            made = folder / "environment"
            try:
                run([base, "-m", "venv", str(made)], user)
                python, almanac = (str(made / "bin" / name) for name in ("python", "almanac"))
                install = [python, "-m", "pip", "install", "-q", f"{wheel}{extra}"]
                run([*install, *requirements.split()], user)
                line = run([python, str(_SMOKE), home], user)
                run([almanac, "changes", "--since", "2026-03-01T06:00Z", "--home", home], user)
                run([almanac, "sql", "FROM events", "--home", home], user)
            except (subprocess.CalledProcessError, OSError) as error:
                failed += 1
                line = f"FAILED\n{(getattr(error, 'stdout', '') or str(error))[-3000:]}\n"
            sys.stdout.write(f"{shown}: {line}")
            sys.stdout.flush()
            shutil.rmtree(made, ignore_errors=True)
    return int(failed > 0)


def starts(python: str) -> bool:
    """Whether there is such a Python: a wrapper of its name may exist that has none to run."""
    words = [python, "-c", ""]
    return shutil.which(python) is not None and not subprocess.call(words, stderr=subprocess.PIPE)


def publish(home: Path) -> Path:
    """Return a home with an event of the first pull and one of the second."""
    home.mkdir()
    pulls = [datetime(2026, 3, day, 6, tzinfo=UTC) for day in (1, 2)]
    versions = [
        Known(
            event_id=f"evt_{number}",
            known_from=pull,
            date=pull + timedelta(days=9),
            coins=("coin-0",),
            change_kinds=(kind,),
        )
        for number, (pull, kind) in enumerate(zip(pulls, ("revealed", "created"), strict=True))
    ]
    coins = [NamedCoin("coin-0", "C0", "Coin 0")]
    return publish_by_hand(home / "warehouse.duckdb", versions, pulls=pulls, coins=coins)


def run(words: Sequence[str], folder: Path) -> str:
    """Run a program in the user's folder, without what this process sets for Python."""
    return subprocess.run(
        words,
        cwd=folder,
        env=_PLAIN,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=2 * HANGS_AFTER_S,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
