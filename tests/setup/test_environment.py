"""What `make` does to `.venv`: once, again, after a kill, beside another, without a network."""

import fcntl
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LOCKS: Final = ("requirements-setup.lock", "requirements.lock", "requirements-dev.lock")


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
        self.root = root
        self.packages = root / ".venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
        self.ran: list[str] = []
        self.fails_at = ""
        """What a command must have in it to fail, or to be killed."""
        self.is_killed = False
        self.after_changes = False
        """Whether packages are put in before it fails."""
        for lock in LOCKS:
            (root / lock).write_text(
                "pip==26 \\\n    --hash=sha256:0\nuv==1 \\\n    --hash=sha256:1\n"
            )
        (root / "pyproject.toml").write_text("")
        (root / "pipeline").mkdir()
        (root / "pipeline" / "almanac").write_text("#!/bin/sh\n")

    def run(self, command: Sequence[str], more: Mapping[str, str]) -> int:
        text = " ".join(command)
        self.ran.append(self.kind_of(text))
        if " -m venv " in text:
            self.packages.mkdir(parents=True)
            (self.root / ".venv" / "bin").mkdir()
            (self.root / ".venv" / "bin" / "python").symlink_to(sys.executable)
        fails = bool(self.fails_at) and self.kind_of(text) == self.fails_at
        if not fails or self.after_changes:
            (self.packages / f"package_{len(list(self.packages.iterdir()))}").mkdir()
        if fails and self.is_killed:
            raise Killed
        return 2 if fails else 0

    def kind_of(self, text: str) -> str:
        if " -m venv " in text:
            return "venv"
        return next((lock for lock in (*LOCKS, "uv.lock") if text.endswith(lock)), "checkout")

    def make(self, *locks: str) -> list[str]:
        """Return what was run."""
        self.ran = []
        environment.Environment(self.root, self.run).bring_up_to_date(locks or LOCKS[1:2])
        return self.ran

    def fail(self, at: str, *locks: str, killed: bool = False, changed: bool = False) -> None:
        self.fails_at, self.is_killed, self.after_changes = at, killed, changed
        with pytest.raises(Killed if killed else environment.SetUpFailed):
            self.make(*locks)
        self.fails_at, self.is_killed, self.after_changes = "", False, False


COLD: Final = ["venv", "uv.lock", "requirements-setup.lock", "requirements.lock", "checkout"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(environment.Environment, "_settings_for_uv", {})
    return Machine(tmp_path)


def test_the_first_make_installs_the_application_and_a_second_runs_nothing(
    machine: Machine,
) -> None:
    assert machine.make() == COLD
    assert machine.make() == []
    command = machine.root / ".venv" / "bin" / "almanac"
    assert command.read_text() == "#!/bin/sh\n"
    assert os.access(command, os.X_OK)


def test_the_tests_add_their_packages_and_the_application_takes_none_away(machine: Machine) -> None:
    machine.make()
    assert machine.make(*LOCKS[1:]) == ["requirements-dev.lock"]
    assert machine.make() == []
    assert machine.make(*LOCKS[1:]) == []


def test_a_changed_lock_alone_is_installed(machine: Machine) -> None:
    machine.make(*LOCKS[1:])
    (machine.root / "requirements.lock").write_text("duckdb==2.0.1\n")
    assert machine.make(*LOCKS[1:]) == ["requirements.lock"]
    (machine.root / "pipeline" / "almanac").write_text("#!/bin/bash\n")
    assert machine.make() == ["checkout"]


def test_pip_installs_uv_alone_from_its_pin(machine: Machine) -> None:
    machine.make()
    assert (machine.root / ".venv" / "uv.lock").read_text() == "uv==1 \\\n    --hash=sha256:1\n"
    (machine.root / "requirements-setup.lock").write_text("uv==2 \\\n    --hash=sha256:2\n")
    assert machine.make() == ["requirements-setup.lock"]


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
    machine.fail("requirements-dev.lock", *LOCKS[1:])
    assert machine.make() == []
    assert machine.make(*LOCKS[1:]) == ["requirements-dev.lock"]


def test_a_disk_that_is_full_in_the_middle_makes_the_next_make_begin_anew(
    machine: Machine,
) -> None:
    machine.make()
    machine.fail("requirements-dev.lock", *LOCKS[1:], changed=True)
    assert machine.make() == COLD


def test_a_moved_checkout_or_a_python_that_is_gone_makes_the_environment_anew(
    machine: Machine, tmp_path: Path
) -> None:
    machine.make()
    (machine.root / ".venv" / "bin" / "python").unlink()
    (machine.root / ".venv" / "bin" / "python").symlink_to(tmp_path / "gone")
    assert machine.make() == COLD
    record = machine.root / ".venv" / ".record.json"
    record.write_text(record.read_text().replace(str(machine.root), "/elsewhere"))
    assert machine.make() == COLD


@pytest.mark.parametrize("record", ["", "[]", '{"python": "3.9"}', None])
def test_an_environment_that_make_did_not_make_or_whose_record_is_damaged_is_made_anew(
    record: str | None, machine: Machine
) -> None:
    machine.make()
    path = machine.root / ".venv" / ".record.json"
    path.unlink() if record is None else path.write_text(record)
    assert machine.make() == COLD


def test_a_folder_of_packages_that_is_a_link_elsewhere_is_not_emptied(
    machine: Machine, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "of-another-project"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (machine.root / ".venv").symlink_to(elsewhere)
    assert machine.make() == COLD
    assert (elsewhere / "file").exists()


def test_a_second_make_waits_for_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    first = os.open(tmp_path, os.O_RDONLY)
    real = fcntl.flock

    def flock(file: int, how: int) -> None:
        asked.append(how)
        if how == fcntl.LOCK_EX:
            os.close(first)
        real(file, how)

    real(first, fcntl.LOCK_EX)
    monkeypatch.setattr(fcntl, "flock", flock)
    with environment.alone(tmp_path):
        assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]
    assert "waiting for it" in capsys.readouterr().err


def test_uv_takes_the_index_proxy_and_certificates_of_pip_unless_it_has_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.make()
    monkeypatch.undo()
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("PIP_CERT", "/etc/own.pem")
    made = environment.Environment(machine.root, machine.run)
    index = {"UV_DEFAULT_INDEX": "https://packages.example/simple"}
    assert made._settings_for_uv == {
        **index,
        "ALL_PROXY": "http://proxy.example:3128",
        "SSL_CERT_FILE": "/etc/own.pem",
    }
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/other.pem")
    monkeypatch.setenv("UV_INDEX_URL", "https://other.example/simple")
    made = environment.Environment(machine.root, machine.run)
    assert made._settings_for_uv == {"ALL_PROXY": "http://proxy.example:3128"}


def test_settings_of_pip_that_can_not_be_read_are_an_error_and_no_other_index_is_asked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.make()
    monkeypatch.undo()
    broken = tmp_path / "pip.conf"
    broken.write_text("index-url = https://user:canary@packages.example/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(broken))
    made = environment.Environment(machine.root, machine.run)
    ran = len(machine.ran)
    with pytest.raises(environment.SetUpFailed, match="pip config list") as failed:
        made._change("-r", "requirements.lock")
    assert "canary" not in str(failed.value)
    assert len(machine.ran) == ran


def test_a_failure_says_what_is_missing_and_that_make_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "_run", lambda command, more: 2)
    monkeypatch.setattr(environment, "__file__", str(machine.root / ".ci" / "environment.py"))
    monkeypatch.chdir(machine.root)
    assert environment.main(["requirements.lock"]) == 1
    printed = capsys.readouterr().err
    assert ".venv is not complete" in printed
    assert "needs a network" in printed
    assert "Run make again" in printed


def test_a_python_without_ensurepip_is_refused_before_anything_is_removed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.root / ".venv").mkdir()
    (machine.root / ".venv" / "file").touch()
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(environment.SetUpFailed, match="apt-get install python3-venv"):
        machine.make()
    assert (machine.root / ".venv" / "file").exists()
