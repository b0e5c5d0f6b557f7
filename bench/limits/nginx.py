"""nginx (Debian's package) as a service that limits by key: `limit_req` with `nodelay`.

Its leaky bucket allows `burst` requests more than one at once, counted in thousandths of a
request and in milliseconds. Belongs here: the server. Does not: its clients.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONFIG = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    limit_req_status 429;
    {zones}
    {servers}
}}
"""
_ZONE = "limit_req_zone $http_x_api_key zone={name}:1m rate={rate}r/s;"
_SERVER = """
    server {{
        listen 127.0.0.1:{port};
        location / {{
            limit_req zone={name} burst={more} nodelay;
            root {folder};
            try_files /none.json =404;
        }}
    }}
"""


class NoNginx(Exception):
    """nginx is not installed."""


@contextmanager
def nginx(folder: Path, limits: dict[str, tuple[float, int]]) -> Iterator[dict[str, str]]:
    """Serve 404 within rate and burst of each plan; gives the base address by plan.

    Raises:
        NoNginx: nginx is not installed.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise NoNginx("nginx is not installed; Debian has it as nginx-light")
    ports = {name: _free_port() for name in limits}
    config = _CONFIG.format(
        folder=folder,
        zones="\n    ".join(
            _ZONE.format(name=name, rate=f"{rate:g}") for name, (rate, _) in limits.items()
        ),
        servers="".join(
            _SERVER.format(name=name, port=ports[name], more=burst - 1, folder=folder)
            for name, (_, burst) in limits.items()
        ),
    )
    (folder / "nginx.conf").write_text(config)
    process = subprocess.Popen(
        [program, "-p", str(folder), "-c", str(folder / "nginx.conf")],
        stderr=subprocess.DEVNULL,
    )
    try:
        for port in ports.values():
            _wait_for(port)
        yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    finally:
        process.terminate()
        process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
