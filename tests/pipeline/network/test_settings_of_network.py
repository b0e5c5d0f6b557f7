"""The settings of proxies and certificates: which one is used, and no password in any text."""

import os
from pathlib import Path

import pytest

from pipeline.secrecy import shareable
from pipeline.settings import SettingsError, described, read_settings
from resources.http.network import Network

PASSWORD = "canary-of-the-proxy-57"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, _, _ in described():
        monkeypatch.delenv(name, raising=False)
    for name in list(os.environ):
        if name.lower() in VARIABLES or name.startswith("SSL_CERT_"):
            monkeypatch.delenv(name)


def proxy_of(network: Network, address: str) -> str:
    found = network.proxy_for(address)
    return "" if found is None else f"{found} {found.setting}"


@pytest.mark.parametrize(
    ("given", "address", "proxy"),
    [
        ({}, "https://a.test", ""),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.test", "http://p:1 HTTPS_PROXY"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a.test", ""),
        ({"http_proxy": "p:1"}, "http://a.test", "http://p:1 HTTP_PROXY"),
        ({"HTTP_PROXY": "p:1", "http_proxy": "q:2"}, "http://a.test", "http://q:2 HTTP_PROXY"),
        ({"HTTP_PROXY": "", "ALL_PROXY": "q:2"}, "http://a.test", "http://q:2 ALL_PROXY"),
        ({"ALL_PROXY": "p:1", "ALMANAC_PROXY": "q:2"}, "http://a.test", "http://q:2 ALMANAC_PROXY"),
        ({"ALL_PROXY": "p:1", "ALMANAC_PROXY": "none"}, "http://a.test", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "a.test"}, "http://a.test", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": ".a.test"}, "http://x.a.test", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "a.test"}, "http://x.a.test", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "a.test"}, "http://ba.test", "http://p:1 ALL_PROXY"),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "*"}, "https://a.test", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "a.test:80"}, "http://a.test", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "a.test:80"}, "http://a.test:8", "http://p:1 ALL_PROXY"),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8"}, "http://10.9.8.7", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "::1"}, "http://[::1]:8", ""),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "b", "ALMANAC_NO_PROXY": "A.TEST"}, "http://a.test", ""),
    ],
)
def test_the_proxy_of_an_address(
    given: dict[str, str], address: str, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(read_settings().network(), address) == proxy


@pytest.mark.parametrize("name", ["ALMANAC_PROXY", "ALL_PROXY", "https_proxy"])
@pytest.mark.parametrize(
    "value",
    [
        f"ftp://u:{PASSWORD}@p",
        f"http://u:{PASSWORD}@",
        f"http://u:{PASSWORD}@p:x/",
        f"http://u:{PASSWORD}@p:99999",
    ],
)
def test_a_wrong_proxy_is_named_without_its_value(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name.upper()) as raised:
        read_settings().network()
    assert PASSWORD not in str(raised.value)


def test_a_socks_proxy_without_its_package_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(SettingsError, match="ALL_PROXY: a SOCKS proxy needs the package socksio"):
        read_settings().network()


def test_no_text_shows_the_password_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{PASSWORD}@p.test:1")
    settings = read_settings()
    network = settings.network()
    proxy = network.proxy_for("https://a.test")
    for text in (repr(settings), repr(network), repr(proxy), str(proxy)):
        assert PASSWORD not in text
    assert PASSWORD not in shareable(settings, f"could not reach http://user:{PASSWORD}@p.test:1")


def test_a_proxy_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proxy").write_text(f"http://user:{PASSWORD}@p.test:1\n")
    monkeypatch.setenv("ALMANAC_PROXY_FILE", str(tmp_path / "proxy"))
    network = read_settings().network()
    assert proxy_of(network, "https://a.test") == "http://p.test:1 ALMANAC_PROXY_FILE"


@pytest.mark.parametrize("name", ["ALMANAC_CA_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_that_cannot_be_read_are_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(SettingsError, match=name):
        read_settings().network()
    if name != "SSL_CERT_DIR":
        (tmp_path / "none").write_text("no certificate")
        with pytest.raises(SettingsError, match="expected a PEM file"):
            read_settings().network()


def test_a_proxy_in_a_received_env_file_is_refused_for_a_key_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("ALMANAC_PROXY=http://p.test:1\n")
    (tmp_path / ".env").chmod(0o600)
    monkeypatch.setenv("ALMANAC_BASE_URL", "https://a.test")
    monkeypatch.setenv("ALMANAC_API_KEY", "a-key-of-mine-123")
    with pytest.raises(SettingsError, match="sets ALMANAC_PROXY, and the key is not set there"):
        read_settings().network()
