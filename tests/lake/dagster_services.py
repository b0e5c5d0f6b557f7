"""Dagster's programs as separate services over PostgreSQL, started, killed and started again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from tests.deploy.page import DEPLOY
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S
from tests.lake.servers import wait_until
from tests.pipeline.automation.daemon import Pages
from tests.test_cli import ROOT

_CODE: Final = (
    *(
        "api",
        "grpc",
        "--host",
        "127.0.0.1",
        "--module-name",
        "tests.lake.definitions_without_polls",
    ),
    *("--location-name", "almanac", "--use-python-environment-entry-point"),
    *("--working-directory", str(ROOT)),
)
_WORKSPACE: Final = """
load_from:
  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: almanac}}
"""


def write_instance(folder: Path, address: str) -> dict[str, str]:
    """Write the `dagster.yaml` of deploy/scale for a database; return the environment it needs."""
    given = urlsplit(address)
    folder.mkdir(parents=True)
    text = (DEPLOY / "scale/dagster.yaml").read_text("utf-8")
    (folder / "dagster.yaml").write_text(text.replace("port: 5432", f"port: {given.port}"))
    return {
        "DAGSTER_HOME": str(folder),
        "DAGSTER_PG_HOST": str(given.hostname),
        "DAGSTER_PG_USERNAME": str(given.username),
        "DAGSTER_PG_PASSWORD": str(given.password),
        "DAGSTER_PG_DB": given.path[1:],
    }


@dataclass
class Services:
    """The running services by name, such as `code-1`. Each has a log in the folder."""

    folder: Path
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def start_code(self, name: str, env: Mapping[str, str]) -> None:
        """Start a code server and wait until it answers."""
        port = self.ports[name] = self.ports.get(name) or free_port()
        program = [sys.executable, "-P", "-m", "dagster"]
        self._start(name, [*program, *_CODE, "--port", str(port)], env)
        (self.folder / f"{name}.yaml").write_text(_WORKSPACE.format(port=port))
        check = [*program, "api", "grpc-health-check", "--port", str(port)]
        wait_until(
            lambda: subprocess.run(check, env=env, capture_output=True).returncode == 0,
            self.running[name],
        )

    def start_daemon(self, name: str, env: Mapping[str, str], *, code: str) -> None:
        program = Path(sys.executable).with_name("dagster-daemon")
        workspace = str(self.folder / f"{code}.yaml")
        self._start(name, [str(program), "run", "--workspace", workspace], env)

    def start_web(self, name: str, env: Mapping[str, str], *, code: str) -> Pages:
        port = self.ports[name] = self.ports.get(name) or free_port()
        program = [sys.executable, "-m", "application.dagster_ui"]
        workspace = str(self.folder / f"{code}.yaml")
        self._start(name, [*program, "--port", str(port), "--workspace", workspace], env)
        pages = Pages(f"http://127.0.0.1:{port}")

        def answers() -> bool:
            try:
                return httpx.get(f"{pages.address}/server_info", trust_env=False).is_success
            except httpx.HTTPError:
                return False

        wait_until(answers, self.running[name])
        return pages

    def name_of(self, worker: int) -> str:
        """Return the code server that started the process of a run."""
        group = os.getpgid(worker)
        return next(name for name, started in self.running.items() if started.pid == group)

    def kill(self, name: str) -> None:
        """Kill a service with -9, and the runs that it executes."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANGS_AFTER_S)

    def _start(self, name: str, command: list[str], env: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**env, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


@contextmanager
def services_in(folder: Path) -> Iterator[Services]:
    """Yield services without any; kill those that run at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    services = Services(folder)
    try:
        yield services
    finally:
        for name in list(services.running):
            services.kill(name)
