"""Makes and repairs `.venv`: `python .ci/environment.py requirements.lock`, or more locks.

Belongs here: the environment of a checkout, from its hashed locks. Does not: which versions; that
is `make lock`. `make` runs this with the Python for the environment, with the standard library.

What is installed already costs a look at some hashes, and no network. An environment that was left
half changed (by a kill, or a full disk), moved, or made with another Python is made anew. Of two
processes the second waits.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

Run = Callable[[Sequence[str], Mapping[str, str]], int]
"""Runs a command with more variables of the environment, and returns its exit code."""

INSTALLER: Final = "requirements-setup.lock"
PROJECT: Final = "pyproject.toml"
COMMAND: Final = "pipeline/almanac"
_SET_FOR_PIP: Final = re.compile(r"(?::env:|global|install)\.([\w-]+)='(.*)'")
_NAME_FOR_UV: Final = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_PROXY": "ALL_PROXY",
    "PIP_CERT": "SSL_CERT_FILE",
}
"""The variables of uv, by those that pip has for its settings."""


class SetUpFailed(Exception):
    """A step failed. The text says which, and what to do."""


class Environment:
    """The folder `.venv` of a checkout.

    `.record.json` in it says what is installed. `.unfinished` is there during a change, and has the
    time at which the folder of packages was last changed before it.
    """

    def __init__(self, root: Path, run: Run) -> None:
        self._root = root
        self._run = run
        self.folder = root / ".venv"
        self._python = self.folder / "bin" / "python"
        self._record = self.folder / ".record.json"
        self._unfinished = self.folder / ".unfinished"

    def bring_up_to_date(self, locks: Sequence[str]) -> None:
        """Install what the locks name, and the packages and the command of the checkout.

        Raises:
            SetUpFailed: a step failed; the next call goes on from what is whole.
        """
        record = self._read_record()
        if record is None:
            record = self._make_anew()
        for lock in (INSTALLER, *locks):
            if record.get(lock) != (digest := self._digest(lock)):
                _say(f"Installing the packages of {lock} ...")
                self._change("--require-hashes", "-r", lock)
                self._write_record(record, lock, digest)
        if record.get(PROJECT) != (digest := self._digest(PROJECT, COMMAND)):
            self._change("--no-deps", "--no-build-isolation", "-e", ".")
            # In place of the command of the wheel, which has the same name.
            self._replace(self.folder / "bin" / "almanac", (self._root / COMMAND).read_text())
            self._write_record(record, PROJECT, digest)

    def _read_record(self) -> dict[str, str] | None:
        """Return what is installed, or None if the environment has to be made anew."""
        try:
            record: dict[str, str] = dict(json.loads(self._record.read_text()))
            changed_before = self._unfinished.read_text() if self._unfinished.exists() else None
        except (OSError, ValueError):
            return None
        made = {name: record.get(name) for name in ("python", "root")}
        if made != self._identity():
            return None
        if changed_before not in (None, self._changed_at()):
            return None
        # The link leads nowhere if its Python was removed from the machine.
        return record if self._python.exists() else None

    def _make_anew(self) -> dict[str, str]:
        pip = _pip_of_the_standard_library()
        _say("Setting up .venv; the first time fetches about 150 MB ...")
        if self.folder.is_dir() and not self.folder.is_symlink():
            shutil.rmtree(self.folder)
        else:
            self.folder.unlink(missing_ok=True)
        # The pip that Python has in it runs as it is. To install it first would take seconds.
        self._try(sys.executable, "-m", "venv", *(["--without-pip"] if pip else []), ".venv")
        uv_alone = self.folder / "uv.lock"
        uv_alone.write_text(_pin_of("uv", (self._root / INSTALLER).read_text()))
        self._try(
            *(*self._pip, "install", "--quiet", "--no-compile", "--disable-pip-version-check"),
            *("--retries", "2", "--require-hashes", "-r", str(uv_alone)),
        )
        record = self._identity()
        self._replace(self._record, json.dumps(record, indent=1))
        return record

    @cached_property
    def _pip(self) -> tuple[str, ...]:
        pip = _pip_of_the_standard_library()
        return (str(self._python), *((str(pip / "pip"),) if pip else ("-m", "pip")))

    def _change(self, *what: str) -> None:
        """Install with uv. A failure before it changed the packages leaves them trusted."""
        self._unfinished.write_text(self._changed_at())
        uv = (str(self.folder / "bin" / "uv"), "pip", "install", "--quiet")
        self._try(*uv, "--python", str(self._python), *what, more=self._settings_for_uv)
        self._unfinished.unlink()

    def _try(self, *command: str, more: Mapping[str, str] | None = None) -> None:
        if code := self._run(command, more or {}):
            step = " ".join(command[-2:])
            raise SetUpFailed(
                f"the step `... {step}` ended with {code}; its reason is above. Packages come from "
                "the index that pip is set up with, so the first make needs a network"
            )

    @cached_property
    def _settings_for_uv(self) -> dict[str, str]:
        """Return pip's index, proxy and certificates as uv's, for what is not set for uv.

        Raises:
            SetUpFailed: pip can't read its settings; without them uv would ask another index.
        """
        asked = subprocess.run(
            [*self._pip, "config", "list"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            # What it printed may quote a line of the settings, with a password.
            raise SetUpFailed(
                "`pip config list` failed, so the index, proxy and certificates of pip are not "
                "known. Run it to see which of pip's settings can't be read"
            )
        found = {
            _NAME_FOR_UV[name]: value
            for key, value in _SET_FOR_PIP.findall(asked.stdout)
            if (name := f"PIP_{key.replace('-', '_').upper()}") in _NAME_FOR_UV
        }
        if "UV_INDEX_URL" in os.environ:
            found.pop("UV_DEFAULT_INDEX", None)
        return {name: value for name, value in found.items() if name not in os.environ}

    def _identity(self) -> dict[str, str]:
        return {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "root": str(self._root)}

    def _changed_at(self) -> str:
        """Return when a package was last put in or taken out, in ns."""
        packages = self.folder / "lib" / f"python{self._identity()['python']}" / "site-packages"
        return str(packages.stat().st_mtime_ns)

    def _digest(self, *names: str) -> str:
        return hashlib.sha256(
            b"".join((self._root / name).read_bytes() for name in names)
        ).hexdigest()

    def _write_record(self, record: dict[str, str], name: str, digest: str) -> None:
        record[name] = digest
        self._replace(self._record, json.dumps(record, indent=1))

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        new = path.with_name(f"{path.name}.new")
        new.write_text(text)
        new.chmod(0o755 if path.parent.name == "bin" else 0o644)
        new.replace(path)


def _pin_of(name: str, lock: str) -> str:
    """Return the lines of one package, with its hashes."""
    found = re.search(rf"^{name}==.*\n(?:\s.*\n)*", lock, re.MULTILINE)
    if found is None:
        raise SetUpFailed(f"{INSTALLER} has no {name}; `make lock` writes it")
    return found[0]


def _pip_of_the_standard_library() -> Path | None:
    """Return the wheel of pip that `ensurepip` installs, or None if it is elsewhere.

    Raises:
        SetUpFailed: this Python has no `ensurepip`.
    """
    import sysconfig

    try:
        import ensurepip
    except ModuleNotFoundError as error:
        raise SetUpFailed(
            f"{sys.executable} has no module ensurepip. On Debian and Ubuntu: "
            "apt-get install python3-venv"
        ) from error

    name = f"pip-{ensurepip.version()}-py3-none-any.whl"
    kept = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folders = [Path(ensurepip.__file__).parent / "_bundled", *([Path(kept)] if kept else [])]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the lock of a checkout; it ends with the process, however that ends."""
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Another make works on .venv; waiting for it ...")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _run(command: Sequence[str], more: Mapping[str, str]) -> int:
    return subprocess.run(command, env={**os.environ, **more}, check=False).returncode


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(locks: Sequence[str]) -> int:
    root = Path(__file__).resolve().parents[1]
    os.chdir(root)
    try:
        with alone(root):
            Environment(root, _run).bring_up_to_date(locks)
    except SetUpFailed as error:
        _say(f"\n.venv is not complete: {error}.\nRun make again: it goes on from what is whole.")
        return 1
    except KeyboardInterrupt:
        _say("Interrupted; run make again to finish .venv.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
