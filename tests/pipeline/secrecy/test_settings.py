"""The settings: read in one place, errors that name the setting, no secret in any text."""

import grp
import json
import pwd
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.secrecy import find_cautions, warn_short_key
from pipeline.settings import Settings, SettingsError, describe_settings, read_settings
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import address_of, settings_of
from tests.pipeline.small_home import SmallHome


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, _, _ in describe_settings():
        monkeypatch.delenv(name, raising=False)


def test_the_key_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "almanac_api_key").write_text("k-123\n")
    (tmp_path / "almanac_alert_url").write_text("")
    monkeypatch.setenv("ALMANAC_BASE_URL", "https://api.example.com/v2/")
    monkeypatch.setenv("ALMANAC_SECRETS_DIR", str(tmp_path))
    settings = read_settings()
    found = settings.service_address()
    assert found is not None
    assert (found[0], found[1].get_secret_value()) == ("https://api.example.com", "k-123")
    assert settings.alert_url is None
    assert "k-123" not in repr(settings) + repr(found) + str(settings.model_dump())
    monkeypatch.setenv("ALMANAC_SECRETS_DIR", str(tmp_path / "almanac_api_key"))
    with pytest.raises(SettingsError, match="ALMANAC_SECRETS_DIR: "):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ALMANAC_PLAN", "gold", "Input should be 'free', 'standard', 'pro', 'elite'"),
        ("ALMANAC_RATE_PER_S", "0", "greater than 0"),
        ("ALMANAC_HOME", "s3://bucket/home", "is an address (s3://…); expected a path"),
        ("ALMANAC_HOME", "file:///var/lib/almanac", "expected the path alone: /var/lib/almanac"),
        ("ALMANAC_STATE", "https://host/state", "is an address (https://…)"),
        ("ALMANAC_EXPORT_COLUMNS", "name=titel", "expected COLUMN=FIELD"),
        ("ALMANAC_LIST_SEPARATOR", ":", "Input should be ';', '|' or ','"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv("ALMANAC_API_KEY", "canary-1")
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name) as caught:
        read_settings()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "canary-1" not in str(caught.value)


def test_every_setting_is_described() -> None:
    rows = describe_settings()
    assert {name for name, _, _ in rows} == {
        f"ALMANAC_{name.upper()}" for name in Settings.model_fields
    }
    assert all(meaning.endswith((".", "`.")) for _, _, meaning in rows)


def test_an_empty_value_means_the_default_of_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, _, _ in describe_settings():
        monkeypatch.delenv(name, raising=False)
    unset = read_settings()
    for name, _, _ in describe_settings():
        monkeypatch.setenv(name, "")
    assert read_settings() == unset
    assert unset.service_address() is None and unset.source == "sandbox:1"
    monkeypatch.setenv("ALMANAC_COINS", " bitcoin, ethereum ,")
    assert read_settings().coins == ("bitcoin", "ethereum")
    monkeypatch.delenv("ALMANAC_COINS")
    assert read_settings().home == Path("data")
    assert read_settings().sandbox_seed == 1


def test_a_tilde_is_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALMANAC_HOME", "~/almanac")
    monkeypatch.setenv("ALMANAC_CA_FILE", "~/key")
    assert read_settings().home == tmp_path / "almanac"
    assert read_settings().ca_file == tmp_path / "key"
    monkeypatch.setenv("ALMANAC_HOME", "~nobody-of-this-name/almanac")
    with pytest.raises(SettingsError, match="ALMANAC_HOME"):
        read_settings()


KEY = "canary-9b1f77c2aa10"
URL, GIVEN, SECRETS = "ALMANAC_BASE_URL", "ALMANAC_API_KEY", "ALMANAC_SECRETS_DIR"


def place(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, in_file: tuple[str, ...], outside: tuple[str]
) -> None:
    key_file = folder / "secrets" / "almanac_api_key"
    key_file.parent.mkdir()
    key_file.write_text(KEY)
    key_file.chmod(0o600)
    values = {URL: "https://api.example.com", GIVEN: KEY, SECRETS: str(key_file.parent)}
    Path(".env").write_text("".join(f"{name}={values[name]}\n" for name in in_file))
    Path(".env").chmod(0o600)
    for name in outside:
        monkeypatch.setenv(name, values[name])


@pytest.mark.parametrize(
    ("in_file", "outside"),
    [((URL,), (GIVEN,)), ((URL,), (SECRETS,)), ((GIVEN,), (URL,)), ((URL,), (URL, GIVEN))],
)
def test_a_env_file_gives_no_address_to_a_key_from_elsewhere(
    in_file: tuple[str, ...], outside: tuple[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place(monkeypatch, tmp_path, in_file=in_file, outside=outside)
    with pytest.raises(SettingsError, match="No request was sent") as raised:
        read_settings().service_address()
    assert KEY not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("in_file", "outside"), [((URL, GIVEN), ()), ((), (URL, GIVEN)), ((), (URL, SECRETS))]
)
def test_address_and_key_of_one_place_are_used(
    in_file: tuple[str, ...], outside: tuple[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place(monkeypatch, tmp_path, in_file=in_file, outside=outside)
    assert read_settings().service_address() is not None


def test_an_env_file_gives_no_proxy_to_a_key_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place(monkeypatch, tmp_path, in_file=(), outside=(URL, GIVEN))  # type: ignore[arg-type]
    Path(".env").write_text("ALMANAC_PROXY=http://p.test:1\n")
    with pytest.raises(SettingsError, match=r"ALMANAC_PROXY is set in .*, and the key is not set"):
        read_settings().network()


@pytest.mark.parametrize("outside", [(), (SECRETS,)])
def test_a_env_file_names_no_folder_of_secrets(
    outside: tuple[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also if a program loaded the file into the environment before."""
    place(monkeypatch, tmp_path, in_file=(URL, SECRETS), outside=outside)
    with pytest.raises(SettingsError, match="from the environment alone"):
        read_settings()


def test_a_env_file_that_others_may_write_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place(monkeypatch, tmp_path, in_file=(URL, GIVEN), outside=())
    Path(".env").chmod(0o602)
    with pytest.raises(SettingsError, match="other users may write"):
        read_settings()
    Path(".env").write_text("OTHER=1\n")
    assert read_settings().service_address() is None


@pytest.mark.parametrize(
    ("group", "members", "is_refused"),
    [("me", [], False), ("me", ["me", "somebody"], True), ("staff", [], True)],
)
def test_a_env_file_that_a_group_of_others_may_write_to_is_refused(
    group: str,
    members: list[str],
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    place(monkeypatch, tmp_path, in_file=(URL, GIVEN), outside=())
    Path(".env").chmod(0o660)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me"))
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=group, gr_mem=members))
    with (
        pytest.raises(SettingsError, match="other users may write") if is_refused else nullcontext()
    ):
        read_settings()


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://api.example.com", True),
        ("https://api.example.com", False),
        ("http://[::1]:8000", False),
        ("http://localhost:1", False),
    ],
)
def test_an_address_in_the_clear_and_a_key_file_for_all_are_warned_of(
    url: str, warned: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ALMANAC_BASE_URL", url)
    key_file = tmp_path / "almanac_api_key"
    key_file.write_text(KEY)
    monkeypatch.setenv("ALMANAC_SECRETS_DIR", str(tmp_path))
    key_file.chmod(0o600)
    assert any("unencrypted" in caution for caution in find_cautions(read_settings())) == warned
    key_file.chmod(0o644)
    assert any("api_key: others can read" in caution for caution in find_cautions(read_settings()))


def test_each_warning_of_secrets_is_printed_once_a_command(
    almanac: Almanac, tmp_path: Path
) -> None:
    key_file = tmp_path / "secrets" / "almanac_api_key"
    key_file.parent.mkdir()
    key_file.write_text("short")
    key_file.chmod(0o640)
    given = {"base_url": "http://10.255.255.1", "plan": "elite"}
    given["secrets_dir"] = str(key_file.parent)
    SmallHome(tmp_path / "data", source="http://10.255.255.1")
    done = almanac("batches", "list", **given)
    assert done.stderr.count("warning: almanac_api_key: others can read") == 1
    assert done.stderr.count("warning: ALMANAC_BASE_URL: http://") == 1
    shown = json.loads(almanac("status", "--json", **given).stdout)
    assert "secrets" in [warning["kind"] for warning in shown["warnings"]]
    short = settings_of(tmp_path, **address_of("http://a.test", "short"))
    assert "fewer than 12 characters" in warn_short_key(short)
    assert warn_short_key(settings_of(tmp_path, **address_of("http://a.test", KEY))) == ""
