"""Makes and repairs `.venv`: `python .ci/environment.py requirements.lock`, or more locks.

`make` runs this with the Python that the environment will have; it needs only the standard library.
Packages that are already installed are recognised by hashes, without a network. The environment is
created again if a change was interrupted (by a kill or a full disk), if it was moved, or if its
Python changed. If two processes run this, the second waits.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

INSTALLER: Final = "locks/setup.lock"
PROJECTS: Final = ("pyproject.toml", "application/pyproject.toml")
VENV: Final = Path(".venv")
PYTHON: Final = VENV / "bin" / "python"
RECORD: Final = VENV / ".record.json"
UNFINISHED: Final = VENV / ".unfinished"
"""Is there during a change, with the time of the last change of the packages before it."""
NAME_FOR_UV: Final = {
    "index_url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
}


class SetUpFailed(Exception):
    """A step failed. The text says which, and what to do."""


def bring_up_to_date(locks: Iterable[str]) -> None:
    """Install what the locks name, and the projects of the checkout in the current folder."""
    record = read_record() or make_anew()
    installs = [((lock,), ("--require-hashes", "-r", lock)) for lock in locks]
    options = ("--no-deps", "--no-build-isolation", "-e", ".", "-e", "application")
    for files, what in [*installs, (PROJECTS, options)]:
        if record.get(files[0]) == (digest := digest_files(*files)):
            continue
        say(f"Installing {files[0]} ...")
        UNFINISHED.write_text(changed_at())
        uv = (VENV / "bin" / "uv", "pip", "install", "--quiet", "--python", PYTHON)
        run(*uv, *what, more=read_settings_for_uv())
        UNFINISHED.unlink()
        record[files[0]] = digest
        write_record(record)


def read_record() -> dict[str, str] | None:
    """Return the record of the installed locks; None if the environment must be created again."""
    try:
        record: dict[str, str] = dict(json.loads(RECORD.read_text()))
        # A failure before the packages changed leaves them trusted.
        is_whole = not UNFINISHED.exists() or UNFINISHED.read_text() == changed_at()
    except (OSError, ValueError):
        return None
    # The link leads nowhere if its Python was removed from the machine.
    is_same = record.items() >= identity().items() and PYTHON.exists()
    return record if is_whole and is_same else None


def make_anew() -> dict[str, str]:
    """Make an environment that contains only the installer; return its record."""
    if find_spec("ensurepip") is None:
        raise SetUpFailed(
            f"{sys.executable} has no module ensurepip, which .venv needs. On Debian and "
            "Ubuntu, run `apt-get install python3-venv`"
        )
    say("Setting up .venv; the first time fetches about 150 MB ...")
    if VENV.is_dir() and not VENV.is_symlink():
        shutil.rmtree(VENV)
    else:
        VENV.unlink(missing_ok=True)
    run(sys.executable, "-m", "venv", VENV)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(PYTHON, *pip, "--require-hashes", "-r", INSTALLER)
    write_record(identity())
    return identity()


def read_settings_for_uv() -> dict[str, str]:
    """Return the index, proxy and certificates of pip, as variables of uv that are not set yet."""
    asked = subprocess.run([PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True)
    if asked.returncode:  # Without them uv would ask another index. The output may have a password.
        raise SetUpFailed(
            "`pip config list` failed, so the index and proxy are not known; run it to see why"
        )
    set_for_pip = re.findall(r"(?::env:|global|install)\.([\w-]+)='(.*)'", asked.stdout)
    given = {name.replace("-", "_"): value for name, value in set_for_pip}
    found = {uv: given[pip] for pip, uv in NAME_FOR_UV.items() if pip in given}
    if "UV_INDEX_URL" in os.environ:
        found.pop("UV_DEFAULT_INDEX", None)
    return {name: value for name, value in found.items() if name not in os.environ}


def run(*command: str | Path, more: Mapping[str, str] | None = None) -> None:
    """Run a step with additional environment variables."""
    done = subprocess.run(command, env=os.environ | (more or {}), check=False)
    if done.returncode:
        step = " ".join(map(str, command[-2:]))
        raise SetUpFailed(
            f"the step `... {step}` ended with {done.returncode}; its reason is above. Packages "
            "come from the index of pip's settings, so the first make needs a network"
        )


def identity() -> dict[str, str]:
    """Return the values whose change requires a new environment."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {"python": python, "root": str(Path.cwd()), INSTALLER: digest_files(INSTALLER)}


def digest_files(*names: str) -> str:
    return hashlib.sha256(b"".join(Path(name).read_bytes() for name in names)).hexdigest()


def changed_at() -> str:
    """Return the time of the last installation or removal of a package, in ns."""
    packages = VENV / "lib" / f"python{identity()['python']}" / "site-packages"
    return str(packages.stat().st_mtime_ns)


def write_record(record: Mapping[str, str]) -> None:
    new = RECORD.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1))
    new.replace(RECORD)


def lock_folder() -> int:
    """Lock the checkout until this process ends, however it ends; return the open folder."""
    folder = os.open(".", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another make works on .venv; waiting for it ...")
        fcntl.flock(folder, fcntl.LOCK_EX)
    return folder


def warn_of_private_python() -> None:
    """Warn if service accounts can't run root's Python."""
    python = Path(sys.executable).resolve()
    closed = [part for part in (python, *python.parents) if not part.stat().st_mode & 0o001]
    if os.geteuid() == 0 and closed:
        say(
            f"Note: only root can run {python} ({closed[-1]} is closed to others). For a service "
            "of another account, name the system's Python: make setup PYTHON=/usr/bin/python3"
        )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(locks: Iterable[str]) -> int:
    os.chdir(Path(__file__).resolve().parents[1])
    warn_of_private_python()
    try:
        lock_folder()
        bring_up_to_date(locks)
    except SetUpFailed as error:
        say(f"\n.venv is not complete: {error}.\nRun make again; installed packages are kept.")
        return 1
    except KeyboardInterrupt:
        say("Interrupted; run make again to finish .venv.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
