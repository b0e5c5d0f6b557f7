"""`almanac run` through a forward proxy and behind a private authority, with real processes."""

import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.session import open_service
from pipeline.settings import read_settings
from resources.session import pull
from tests.hangs import HANGS_AFTER_S
from tests.pipeline.homes_in_days import NOW, address_of, settings_of
from tests.pipeline.network.certificates import Authority, new_authority
from tests.pipeline.network.relay import Relay, relay
from tests.test_cli import ALMANAC, environment

PASSWORD = "canary-of-the-proxy-41"
HOST = "catalog.test"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Relay]:
    with relay(tmp_path / "proxy.log", "proxy", f"user:{PASSWORD}") as running:
        yield running


@pytest.fixture
def secured(tmp_path: Path, authority: Authority, almanac_sandbox: Sandbox) -> Iterator[Relay]:
    """The sandbox behind TLS, with a certificate of the private authority."""
    certificate, key = authority.issue(HOST)
    log = tmp_path / "tls.log"
    with relay(log, "tls", certificate, key, almanac_sandbox.port) as running:
        yield running


def without_network(env: dict[str, str]) -> dict[str, str]:
    """Return an environment without proxies and certificates."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
    return {name: value for name, value in env.items() if name.upper() not in names}


class Person:
    """Somebody who runs commands against the sandbox at an address."""

    def __init__(self, folder: Path, sandbox: Sandbox, base_url: str, **given: str) -> None:
        self.folder = folder
        self.env = {
            **without_network(environment(folder / "data")),
            "ALMANAC_BASE_URL": base_url,
            "ALMANAC_API_KEY": sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000),
            "ALMANAC_COINS": "bitcoin",
            "ALMANAC_MAX_CLOCK_SKEW_DAYS": "36500",
            **given,
        }

    def start(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*ALMANAC, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=HANGS_AFTER_S,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output
        assert PASSWORD not in output
        return output


@pytest.mark.parametrize("command", ["doctor", pytest.param("run", marks=pytest.mark.long)])
def test_a_command_through_a_proxy_and_behind_a_private_authority(
    tmp_path: Path,
    almanac_sandbox: Sandbox,
    authority: Authority,
    proxy: Relay,
    secured: Relay,
    command: str,
) -> None:
    address = f"https://{HOST}:{secured.port}"
    person = Person(
        tmp_path,
        almanac_sandbox,
        address,
        HTTPS_PROXY=f"http://user:{PASSWORD}@127.0.0.1:{proxy.port}",
    )
    words = [command] if command == "run" else ["doctor", "--json"]
    refused = person.start(*words, code=1)
    assert "certificate can't be verified" in refused
    assert "set ALMANAC_CA_FILE" in refused
    assert len(secured.seen) == 1, "it is tried once"
    person.env["ALMANAC_CA_FILE"] = str(authority.file)
    checked = person.start("doctor")
    assert f"proxy http://127.0.0.1:{proxy.port} (HTTPS_PROXY)" in " ".join(checked.split())
    assert "authority.pem" in checked
    if command == "run":
        before = len(proxy.seen)
        assert "rows" in person.start("run")
        assert len(proxy.seen) > before
    assert set(proxy.seen) == {f"CONNECT {HOST}:{secured.port}"}
    stored = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in stored if PASSWORD.encode() in path.read_bytes()]


def test_plain_requests_take_the_proxy_and_exceptions_do_not(
    tmp_path: Path, almanac_sandbox: Sandbox, proxy: Relay
) -> None:
    person = Person(
        tmp_path,
        almanac_sandbox,
        almanac_sandbox.base_url,
        http_proxy=f"user:{PASSWORD}@127.0.0.1:{proxy.port}",
    )
    person.start("doctor")
    seen = proxy.seen
    assert seen
    assert all(line.startswith(f"GET {almanac_sandbox.base_url}/v2/") for line in seen)
    person.env["NO_PROXY"] = "example.com, 127.0.0.0/8"
    assert "no proxy" in person.start("doctor")
    assert proxy.seen == seen


def test_a_proxy_that_refuses_is_reported_once(
    tmp_path: Path, almanac_sandbox: Sandbox, proxy: Relay
) -> None:
    person = Person(
        tmp_path,
        almanac_sandbox,
        "https://catalog.test",
        ALMANAC_PROXY=f"http://user:wrong@127.0.0.1:{proxy.port}",
    )
    refused = person.start("doctor", "--json", code=1)
    assert f"the proxy http://127.0.0.1:{proxy.port} refused it" in refused
    assert "Set user and password in ALMANAC_PROXY" in refused
    assert len(proxy.seen) == 1
    person.env["ALMANAC_BASE_URL"] = "http://catalog.test"
    assert "Set user and password in ALMANAC_PROXY" in person.start("doctor", "--json", code=1)
    assert len(proxy.seen) == 2


def test_a_proxy_whose_name_is_not_known_is_reported_once(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    person = Person(
        tmp_path,
        almanac_sandbox,
        "https://catalog.test",
        HTTPS_PROXY=f"http://user:{PASSWORD}@nowhere.invalid:3128",
    )
    refused = person.start("doctor", "--json", code=1)
    assert "the name of the proxy http://nowhere.invalid:3128 can't be resolved" in refused
    assert "attempts" not in refused


def test_the_embedded_sandbox_takes_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("ALMANAC_HOME", str(tmp_path / "data"))
    settings = read_settings()
    assert settings.network().proxy_for("http://127.0.0.1:1") is not None
    with open_service(settings, now=NOW) as service:
        assert service.usage is not None


FAILING = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
CUT = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 9999\r\n\r\nid,title,date\r\n1,"
)


@pytest.mark.parametrize("answer", [CUT, FAILING], ids=["cut", "refused"])
def test_a_failing_export_is_deferred(
    tmp_path: Path, almanac_sandbox: Sandbox, answer: bytes
) -> None:
    (tmp_path / "answer").write_bytes(answer)
    words = ("faulty", "/v2/events/export", tmp_path / "answer", almanac_sandbox.port)
    with relay(tmp_path / "log", *map(str, words)) as front:
        key = almanac_sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
        settings = settings_of(
            tmp_path,
            **address_of(f"http://127.0.0.1:{front.port}", key),
            export_interval_s=0,
            max_clock_skew_days=36_500,
        )
        with open_service(settings) as service:
            pulled = pull("export", service)
    assert pulled.deferred is not None
    assert pulled.deferred.reason == "failing"
    wait = pulled.deferred.resume_at - almanac_sandbox.clock.now()
    assert timedelta(hours=2) < wait < timedelta(hours=4)
    assert len([line for line in front.seen if line.startswith("/v2/events/export")]) == 2


@pytest.mark.long
@pytest.mark.parametrize("answer", [CUT, FAILING], ids=["cut", "refused"])
def test_an_export_that_always_fails_is_deferred_and_the_day_goes_on(
    tmp_path: Path, almanac_sandbox: Sandbox, answer: bytes
) -> None:
    (tmp_path / "answer").write_bytes(answer)
    words = ("faulty", "/v2/events/export", tmp_path / "answer", almanac_sandbox.port)
    with relay(tmp_path / "log", *map(str, words)) as front:
        person = Person(
            tmp_path,
            almanac_sandbox,
            f"http://127.0.0.1:{front.port}",
            ALMANAC_EXPORT_INTERVAL_S="3",
        )
        output = person.start("run")
        exports = [line for line in front.seen if line.startswith("/v2/events/export")]
    assert len(exports) == 2
    assert "then attempt 2 of 2" in output
    assert "Waiting" in output
    assert "ALMANAC_EXPORT_INTERVAL_S" in output
    assert "landed_export" in output
    assert "deferred" in output
    status = person.start("status")
    assert "export" in status
    assert "deferred" in status.lower()
    assert '"events"' in person.start("status", "--json")


@pytest.mark.long
@pytest.mark.parametrize(
    "wait", ["7200", "2099-01-01T00:00:00Z", "Thu, 01 Jan 2099 00:00:00 GMT", "4070908800"]
)
def test_a_run_does_not_wait_for_a_long_retry_after(
    tmp_path: Path, almanac_sandbox: Sandbox, wait: str
) -> None:
    head = f"HTTP/1.1 429 Too Many\r\nRetry-After: {wait}\r\nContent-Length: 0\r\n\r\n"
    (tmp_path / "answer").write_bytes(head.encode())
    words = ("faulty", "/v2/coins", tmp_path / "answer", almanac_sandbox.port)
    with relay(tmp_path / "log", *map(str, words)) as front:
        person = Person(tmp_path, almanac_sandbox, f"http://127.0.0.1:{front.port}")
        output = person.start("run")
        assert "Resume at" in output
        assert "Deferred" in person.start("run")
