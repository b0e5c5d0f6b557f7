"""The receiver behind nginx and Caddy, with the configurations of docs/push.md, over TLS.

A server that is not installed is skipped: `apt-get install nginx-light caddy`.
"""

import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import pytest

from application.cli.push import DEFAULT_PORT
from application.receiver import BODY_MAX
from catalog.contract.constants import SIGNATURE_HEADER
from tests.deploy.page import DEPLOY
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.resources.inbox.deliveries import bodies_in, delivery
from tests.server.webhooks.receiver import digest
from tests.test_cli import ALMANAC, environment
from warehouse.home import Home

NAME: Final = "hooks.example.com"
SECRET: Final = "a secret for the tests of proxies"
NUMBERS: Final = count(1)
FILES: Final = {"nginx": DEPLOY / "nginx-webhooks.conf", "caddy": DEPLOY / "Caddyfile"}


def new_delivery(title: str) -> bytes:
    """Return a body with an id of its own."""
    return delivery(next(NUMBERS), title=title)


class Receiver:
    """`almanac receive` as a process, on one port."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.port = free_port()
        self._environment = {
            **environment(self.home.root),
            "ALMANAC_WEBHOOK_SECRETS": SECRET,
        }

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*ALMANAC, "receive", "--json", "--port", str(self.port)],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["url"].endswith("/webhooks")

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=HANGS_AFTER_S)

    def stored(self) -> list[bytes]:
        return bodies_in(self.home)


@dataclass(frozen=True)
class Proxy:
    """A server with TLS in front of the receiver; `logs` are all files that it writes to."""

    name: str
    port: int
    certificate: Path
    logs: Path
    receiver: Receiver

    def client(self) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(verify=context, trust_env=False, timeout=HANGS_AFTER_S)

    def send(
        self, content: bytes | Iterator[bytes], signature: str, path: str = "/webhooks"
    ) -> int:
        with self.client() as client:
            return client.post(
                f"https://127.0.0.1:{self.port}{path}",
                headers={"Host": NAME, SIGNATURE_HEADER: signature},
                content=content,
                extensions={"sni_hostname": NAME},
            ).status_code

    def send_signed(self, body: bytes) -> int:
        return self.send(body, digest(SECRET, body))


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path_factory.mktemp("receiver"))
    receiver.start()
    yield receiver
    receiver.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate; its key lies beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, for a certificate")
    made = tmp_path_factory.mktemp("certificate") / "almanac.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *(
                "-nodes",
                "-days",
                "2",
                "-subj",
                f"/CN={NAME}",
                "-addext",
                f"subjectAltName=DNS:{NAME}",
            ),
            *("-keyout", made.with_suffix(".key"), "-out", made),
        ],
        capture_output=True,
        check=True,
        timeout=HANGS_AFTER_S,
    )
    return made


@pytest.fixture(scope="module", params=FILES)
def proxy(
    request: pytest.FixtureRequest,
    receiver: Receiver,
    certificate: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxy]:
    program = shutil.which(request.param, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    proxy = Proxy(request.param, free_port(), certificate, folder / "logs", receiver)
    proxy.logs.mkdir()
    text = FILES[request.param].read_text("utf-8")
    text = replaced(text, f"127.0.0.1:{DEFAULT_PORT}", f"127.0.0.1:{receiver.port}")
    make = nginx_command if request.param == "nginx" else caddy_command
    with (
        (proxy.logs / "output").open("wb") as output,
        subprocess.Popen(
            [program, *make(proxy, text, folder)],
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            wait_until_listening(proxy, process)
            yield proxy
        finally:
            process.terminate()


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def nginx_command(proxy: Proxy, text: str, folder: Path) -> list[str]:
    text = replaced(text, "listen 443", f"listen 127.0.0.1:{proxy.port}")
    text = replaced(text, "/etc/nginx/almanac.", f"{proxy.certificate.with_suffix('')}.")
    text = replaced(text, "/var/log/nginx", str(proxy.logs))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder / kind};\n" for kind in kinds)
    # The worker of a master that is root would be another user, who can't read this folder.
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; worker_processes 1; pid {folder}/pid; error_log {proxy.logs}/errors;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{places}{text}}}\n"
    )
    return ["-c", str(folder / "nginx.conf"), "-p", str(folder)]


def caddy_command(proxy: Proxy, text: str, folder: Path) -> list[str]:
    # No port beside this one: neither 80 nor that of the administration.
    text = replaced(text, "\tservers {", "\tadmin off\n\tauto_https off\n\tservers {")
    tls = f"tls {proxy.certificate} {proxy.certificate.with_suffix('.key')}"
    text = replaced(
        text, f"{NAME} {{", f"https://{NAME}:{proxy.port} {{\n\tbind 127.0.0.1\n\t{tls}"
    )
    (folder / "Caddyfile").write_text(text)
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def wait_until_listening(proxy: Proxy, process: subprocess.Popen[bytes]) -> None:
    def is_listening() -> bool:
        assert process.poll() is None, (proxy.logs / "output").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", proxy.port)) == 0

    wait_for(is_listening)


def test_a_signed_delivery_is_stored_as_it_was_sent(proxy: Proxy) -> None:
    body = new_delivery(f"Münze, behind {proxy.name}")
    assert proxy.send_signed(body) == 204
    assert body in proxy.receiver.stored()


def test_a_body_whose_length_is_not_announced_is_stored(proxy: Proxy) -> None:
    body = new_delivery(f"In parts, behind {proxy.name}")
    assert proxy.send(iter([body[:100], body[100:]]), digest(SECRET, body)) == 204
    assert body in proxy.receiver.stored()


def test_a_forged_delivery_is_refused(proxy: Proxy) -> None:
    body = new_delivery(f"Forged, behind {proxy.name}")
    assert proxy.send(body, digest("another secret", body)) == 401
    assert body not in proxy.receiver.stored()


def test_a_body_of_256_kib_is_stored_and_one_of_257_kib_refused(proxy: Proxy) -> None:
    body = new_delivery(f"Large, behind {proxy.name}")
    for size, status in ((BODY_MAX, 204), (257 * 1024, 413)):
        assert proxy.send_signed(body.ljust(size)) == status
        assert (body.ljust(size) in proxy.receiver.stored()) == (status == 204)


@pytest.mark.parametrize("path", ["/", "/healthz", "/webhooks/", "/webhooks/more", "/other"])
def test_other_paths_are_not_found(proxy: Proxy, path: str) -> None:
    body = new_delivery("Elsewhere")
    assert proxy.send(body, digest(SECRET, body), path) == 404


def test_a_get_of_the_endpoint_shows_that_the_way_to_the_receiver_is_open(proxy: Proxy) -> None:
    with proxy.client() as client:
        answer = client.get(
            f"https://127.0.0.1:{proxy.port}/webhooks",
            headers={"Host": NAME},
            extensions={"sni_hostname": NAME},
        )
    assert answer.status_code == 405


def test_a_sender_is_asked_to_come_back_while_the_receiver_is_stopped(proxy: Proxy) -> None:
    body = new_delivery(f"Sent twice, behind {proxy.name}")
    proxy.receiver.stop()
    try:
        assert proxy.send_signed(body) in (502, 503)
    finally:
        proxy.receiver.start()
    assert proxy.send_signed(body) == 204
    assert proxy.send_signed(body) == 204
    assert proxy.receiver.stored().count(body) == 1


def test_no_log_has_a_signature_or_a_body(proxy: Proxy) -> None:
    body = new_delivery(f"Secret, behind {proxy.name}")
    assert proxy.send_signed(body) == 204
    assert proxy.send(body, digest("another secret", body)) == 401
    for log in proxy.logs.iterdir():
        text = log.read_text()
        assert "Secret, behind" not in text
        assert digest(SECRET, body) not in text
    if proxy.name == "nginx":
        assert "POST /webhooks 401" in (proxy.logs / "almanac-webhooks.log").read_text()
