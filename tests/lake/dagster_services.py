"""Dagster's programs as separate services over PostgreSQL, started, killed and started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tests.deploy.page import DEPLOY
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S
from tests.lake.servers import wait_until
from tests.pipeline.automation.daemon import Pages
from tests.test_cli import ROOT

_CODE: Final = (
    *("api", "grpc", "--host", "127.0.0.1", "--module-name", "pipeline.definitions"),
    *("--location-name", "almanac", "--use-python-environment-entry-point"),
    *("--working-directory", str(ROOT)),
)
_WORKSPACE: Final = """
load_from:
  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: almanac}}
"""


def write_instance(folder: Path, address: str, *, of: str = "scale/dagster.yaml") -> dict[str, str]:
    """Write a `dagster.yaml` of deploy/ for a database; return the environment it needs."""
    given = urlsplit(address)
    folder.mkdir(parents=True)
    text = (DEPLOY / of).read_text("utf-8")
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
        program = str(Path(sys.executable).with_name("dagster-webserver"))
        workspace = str(self.folder / f"{code}.yaml")
        self._start(name, [program, "--port", str(port), "--workspace", workspace], env)
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


class Cluster(ThreadingHTTPServer):
    """The part of the interface of Kubernetes that starts Jobs. Each is one local process.

    A process gets the variables of the pod, and those that its secrets and config maps would have.
    """

    def __init__(self, folder: Path, from_secrets: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", free_port()), _ClusterRequests)
        self.folder = folder
        self.from_secrets = from_secrets
        self.jobs: dict[str, Any] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def kubeconfig(self) -> dict[str, Any]:
        server = {"server": f"http://127.0.0.1:{self.server_port}"}
        named = {"name": "local"}
        return {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "local", "users": []},
            "clusters": [{**named, "cluster": server}],
            "contexts": [{**named, "context": {"cluster": "local", "user": ""}}],
        }

    def create(self, job: dict[str, Any]) -> bool:
        """Start the process of a Job. Return whether its name was new."""
        name = job["metadata"]["name"]
        if name in self.jobs:
            return False
        self.jobs[name] = job
        (container,) = job["spec"]["template"]["spec"]["containers"]
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        ours = {name: given[name] for name in given.keys() - self.from_secrets.keys()}
        # Without a command, the pod would run the entry point of the image.
        program = [*container["command"], *container["args"]]
        with (self.folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                program,
                cwd=ROOT,
                env={**ours, **self.from_secrets, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=output,
            )
        self.processes.append(process)
        return True


class _ClusterRequests(BaseHTTPRequestHandler):
    server: Cluster

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # /apis/batch/v1/namespaces/NAME/jobs
        job["metadata"]["namespace"] = self.path.split("/")[-2]
        is_new = self.server.create(job)
        job["status"] = {"active": 1}
        self._answer(201 if is_new else 409, job)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removesuffix("/status")
        job = self.server.jobs.get(path.rpartition("/")[2])
        self._answer(200, job or {"kind": "List", "apiVersion": "v1", "items": []})

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def running_cluster(folder: Path, from_secrets: Mapping[str, str]) -> Iterator[Cluster]:
    """Serve until the end of the block, and kill the processes of Jobs."""
    folder.mkdir(parents=True)
    with Cluster(folder, from_secrets) as cluster:
        thread = Thread(target=cluster.serve_forever, daemon=True)
        thread.start()
        try:
            yield cluster
        finally:
            cluster.shutdown()
            thread.join(HANGS_AFTER_S)
            for process in cluster.processes:
                process.kill()
                process.wait(HANGS_AFTER_S)
