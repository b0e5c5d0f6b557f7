"""The password of the database is kept nowhere; status and doctor show the lease."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.secrecy.repeating_service import KEY, traces_in
from tests.pipeline.secrecy.test_canary import contents, watched_processes
from tests.test_cli import ALMANAC, environment
from warehouse.shared.database import SharedDatabase

pytestmark = pytest.mark.lake


@dataclass
class Machine:
    """A machine whose user has the address of the database in a file."""

    folder: Path
    printed: str = ""
    """The standard output of the last command."""

    def read(self, address: str, *words: str) -> Any:
        """Run a command; return the JSON that it printed."""
        self.start(address, *words, "--json")
        return json.loads(self.printed)

    def start(self, address: str, *words: str) -> tuple[int, str]:
        """Run a command; return its exit code and all that it wrote."""
        file = self.folder / "key" / "postgres"
        file.parent.mkdir(exist_ok=True)
        file.write_text(address)
        file.chmod(0o600)
        env = environment(self.folder / "data")
        env |= {"ALMANAC_POSTGRES_FILE": str(file), "ALMANAC_ICEBERG": "1"}
        done = subprocess.run(
            [*ALMANAC, *words],
            cwd=self.folder,
            env=env,
            capture_output=True,
            timeout=HANGS_AFTER_S,
        )
        self.printed = done.stdout.decode()
        output = self.printed + done.stderr.decode()
        assert traces_in(output.encode()) == [], output
        assert "Traceback" not in output, output
        return done.returncode, output


@pytest.fixture
def address(postgres: str) -> str:
    """The address of a database for a role whose password has every odd character."""
    name = urlsplit(postgres).path[1:]
    with SharedDatabase(postgres).connect() as connection:
        role, secret = f"writer_{name}", KEY.replace("'", "''")
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{secret}'".encode())
        connection.execute(f"ALTER DATABASE {name} OWNER TO {role}".encode())
    host = urlsplit(postgres).netloc.rpartition("@")[2]
    return f"postgresql://{role}:{quote(KEY, safe='')}@{host}/{name}"


def test_the_password_is_found_nowhere(address: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with watched_processes() as shown:
        assert machine.start(address, "run")[0] == 0
        status = machine.read(address, "status")
        assert status["lease"]["epoch"] >= 1 and not status["lease"]["is_held"]
        assert status["iceberg"]["publication"]
        doctor = machine.read(address, "doctor")
        (check,) = [found for found in doctor if found["what"] == "writer lease"]
        assert check["holds"] and "the lease is free" in check["found"]
        wrong = address.replace("%26@", "%26-wrong@")
        closed = f"{address.rpartition('@')[0]}@127.0.0.1:{free_port()}/lake"
        unescaped = address.replace(quote(KEY, safe=""), KEY)
        for text, expected in (
            (wrong, "password authentication failed"),
            (closed, "refused"),
            (unescaped, "can't be read as an address"),
            (address.replace("postgresql:", "mysql:"), "expected postgresql://"),
        ):
            code, output = machine.start(text, "merge")
            assert code and expected in output, output
        for command in ("status", "doctor"):
            machine.start(wrong, command)
    assert shown == []
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "key"]
    assert any("iceberg" in str(path) for path in files)
    kept = [path for path in files for text in contents(path) if traces_in(text)]
    assert kept == []
    with SharedDatabase(address).connect() as connection:
        held = connection.execute("SELECT * FROM almanac.writer_lease").fetchall()
        tables = connection.execute("SELECT * FROM iceberg_tables").fetchall()
    assert traces_in(f"{held} {tables}".encode()) == []


def test_doctor_names_a_missing_privilege(postgres: str, tmp_path: Path) -> None:
    name = urlsplit(postgres).path[1:]
    with SharedDatabase(postgres).connect() as connection:
        connection.execute(f"CREATE ROLE guest_{name} LOGIN PASSWORD 'guest'".encode())
    host = urlsplit(postgres).netloc.rpartition("@")[2]
    guest = f"postgresql://guest_{name}:guest@{host}/{name}"
    machine = Machine(tmp_path)
    doctor = machine.read(guest, "doctor")
    (check,) = [found for found in doctor if found["what"] == "writer lease"]
    assert not check["holds"]
    assert "this user may not read and update almanac.writer_lease" in check["found"]
    code, output = machine.start(guest, "run")
    assert code and "permission denied" in output, output
