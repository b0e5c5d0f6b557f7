"""What `make` does to `.venv`: once, again, after a kill, without a network."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = ("locks/setup.lock", "requirements.lock", "locks/dev.lock")


def environment_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci" / "environment.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


environment = environment_module()


class Killed(BaseException):
    """The process ends here."""


class Machine:
    """A checkout, and what the commands of the set-up do to it."""

    def __init__(self, root: Path) -> None:
        self.packages = root / ".venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
        self.ran: list[str] = []
        self.fails_at = ""
        """What a command must have in it to fail, or to be killed."""
        self.is_killed = False
        self.after_changes = False
        """Whether packages are put in before it fails."""
        (root / "locks").mkdir()
        for lock in LOCKS:
            (root / lock).write_text("pip==26 \\\n    --hash=sha256:0\n")
        (root / "application").mkdir()
        for project in environment.PROJECTS:
            (root / project).write_text("")

    def run(self, *command: str | Path, more: Any = None) -> None:
        text = " ".join(map(str, command))
        kind = next((lock for lock in LOCKS if text.endswith(lock)), "checkout")
        kind = "venv" if " -m venv " in text else kind
        self.ran.append(kind)
        if kind == "venv":
            self.packages.mkdir(parents=True)
            Path(".venv/bin").mkdir()
            Path(".venv/bin/python").symlink_to(sys.executable)
        fails = bool(self.fails_at) and kind == self.fails_at
        if not fails or self.after_changes:
            (self.packages / f"package_{len(list(self.packages.iterdir()))}").mkdir()
        if fails:
            raise Killed if self.is_killed else environment.SetUpFailed("it failed")

    def make(self, *locks: str) -> list[str]:
        """Return what was run."""
        self.ran = []
        environment.bring_up_to_date(locks or LOCKS[1:2])
        return self.ran

    def fail(self, at: str, *locks: str, killed: bool = False, changed: bool = False) -> None:
        self.fails_at, self.is_killed, self.after_changes = at, killed, changed
        with pytest.raises(Killed if killed else environment.SetUpFailed):
            self.make(*locks)
        self.fails_at, self.is_killed, self.after_changes = "", False, False


COLD: Final = ["venv", "locks/setup.lock", "requirements.lock", "checkout"]
FOLDER: Final = Path(".venv")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.chdir(tmp_path)
    machine = Machine(tmp_path)
    monkeypatch.setattr(environment, "read_settings_for_uv", dict)
    monkeypatch.setattr(environment, "run", machine.run)
    return machine


def test_the_first_make_installs_the_application_and_a_second_runs_nothing(
    machine: Machine,
) -> None:
    assert machine.make() == COLD
    assert machine.make() == []


def test_the_tests_add_their_packages_and_the_application_takes_none_away(machine: Machine) -> None:
    machine.make()
    assert machine.make(*LOCKS[1:]) == ["locks/dev.lock"]
    assert machine.make() == []
    assert machine.make(*LOCKS[1:]) == []


def test_a_changed_lock_or_project_alone_is_installed(machine: Machine) -> None:
    machine.make(*LOCKS[1:])
    Path("requirements.lock").write_text("duckdb==2.0.1\n")
    assert machine.make(*LOCKS[1:]) == ["requirements.lock"]
    Path("application/pyproject.toml").write_text("[project]\n")
    assert machine.make() == ["checkout"]


@pytest.mark.parametrize("at", COLD)
@pytest.mark.parametrize("changed", [False, True], ids=["before it", "in it"])
def test_an_environment_whose_make_was_killed_is_whole_after_the_next(
    at: str, changed: bool, machine: Machine
) -> None:
    machine.fail(at, killed=True, changed=changed)
    ran = machine.make()
    is_anew = at in COLD[:2] or changed
    assert ran == (COLD if is_anew else COLD[COLD.index(at) :])
    assert machine.make() == []


def test_a_failure_without_a_network_leaves_what_was_installed_in_use(machine: Machine) -> None:
    machine.make()
    machine.fail("locks/dev.lock", *LOCKS[1:])
    assert machine.make() == []
    assert machine.make(*LOCKS[1:]) == ["locks/dev.lock"]


def test_another_folder_python_or_installer_makes_the_environment_anew(
    machine: Machine, tmp_path: Path
) -> None:
    machine.make()
    Path("locks/setup.lock").write_text("uv==2\n")
    assert machine.make() == COLD
    (FOLDER / "bin" / "python").unlink()
    (FOLDER / "bin" / "python").symlink_to(tmp_path / "gone")
    assert machine.make() == COLD
    record = FOLDER / ".record.json"
    record.write_text(record.read_text().replace(str(tmp_path), "/elsewhere"))
    assert machine.make() == COLD


@pytest.mark.parametrize("record", ["", "[]", '{"python": "3.9"}', None])
def test_an_environment_that_make_did_not_make_or_whose_record_is_damaged_is_made_anew(
    record: str | None, machine: Machine
) -> None:
    machine.make()
    path = FOLDER / ".record.json"
    path.unlink() if record is None else path.write_text(record)
    assert machine.make() == COLD


def test_a_folder_of_packages_that_is_a_link_elsewhere_is_not_emptied(
    machine: Machine, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "of-another-project"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    FOLDER.symlink_to(elsewhere)
    assert machine.make() == COLD
    assert (elsewhere / "file").exists()


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The pip of this environment, without settings."""
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return monkeypatch


def test_settings_of_pip_that_can_not_be_read_are_an_error_and_no_other_index_is_asked(
    pip: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "pip.conf"
    broken.write_text("index-url = https://user:canary@packages.example/simple")
    pip.setenv("PIP_CONFIG_FILE", str(broken))
    with pytest.raises(environment.SetUpFailed, match="pip config list") as failed:
        environment.read_settings_for_uv()
    assert "canary" not in str(failed.value)


def test_a_python_without_ensurepip_is_refused_before_anything_is_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    FOLDER.mkdir()
    (FOLDER / "file").touch()
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    with pytest.raises(environment.SetUpFailed, match="apt-get install python3-venv"):
        machine.make()
    assert (FOLDER / "file").exists()
