"""The settings: read in one place, told plainly, never shown."""

from pathlib import Path

import pytest

from pipeline.settings import Settings, SettingsError, described, read_settings


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, _, _ in described():
        monkeypatch.delenv(name, raising=False)


def test_without_address_and_key_it_is_the_sandbox() -> None:
    settings = read_settings()
    assert settings.service_address() is None
    assert settings.source == "sandbox:1"


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ("ALMANAC_BASE_URL", "ALMANAC_API_KEY"),
        ("ALMANAC_API_KEY", "ALMANAC_BASE_URL"),
    ],
)
def test_one_without_the_other_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str, lacking: str
) -> None:
    monkeypatch.setenv(given, "https://api.example.com")
    with pytest.raises(SettingsError, match=f"{given} is set, but {lacking} is not"):
        read_settings().service_address()


def test_the_key_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k-123\n")
    monkeypatch.setenv("ALMANAC_BASE_URL", "https://api.example.com/v2/")
    monkeypatch.setenv("ALMANAC_API_KEY_FILE", str(tmp_path / "key"))
    found = read_settings().service_address()
    assert found is not None
    assert (found[0], found[1].get_secret_value()) == ("https://api.example.com", "k-123")
    assert "k-123" not in repr(read_settings()) + repr(found)
    (tmp_path / "key").unlink()
    with pytest.raises(SettingsError, match="ALMANAC_API_KEY_FILE"):
        read_settings().service_address()


def test_comma_lists_and_empty_texts_are_read_as_people_write_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALMANAC_COINS", " bitcoin, ethereum ,")
    monkeypatch.setenv("ALMANAC_PLAN", "")
    monkeypatch.setenv("ALMANAC_BASE_URL", "")
    settings = read_settings()
    assert settings.coins == ("bitcoin", "ethereum")
    assert settings.plan is None
    assert settings.service_address() is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALMANAC_PLAN", "gold", "there is no plan 'gold'"),
        ("ALMANAC_RATE_PER_S", "0", "greater than 0"),
        ("ALMANAC_BURST", "many", "valid integer"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv("ALMANAC_API_KEY", "canary-1")
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name) as caught:
        read_settings()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "canary-1" not in str(caught.value)


def test_every_setting_is_described() -> None:
    rows = described()
    assert {name for name, _, _ in rows} == {
        f"ALMANAC_{name.upper()}" for name in Settings.model_fields
    }
    assert all(meaning.endswith((".", "`.")) for _, _, meaning in rows)


def test_an_empty_text_is_the_default_also_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, _, _ in described():
        monkeypatch.delenv(name, raising=False)
    unset = read_settings()
    for name, _, _ in described():
        monkeypatch.setenv(name, "")
    assert read_settings() == unset
    assert read_settings().home == Path("data")
    assert read_settings().sandbox_seed == 1


def test_a_tilde_is_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALMANAC_HOME", "~/almanac")
    monkeypatch.setenv("ALMANAC_API_KEY_FILE", "~/key")
    assert read_settings().home == tmp_path / "almanac"
    assert read_settings().api_key_file == tmp_path / "key"
    monkeypatch.setenv("ALMANAC_HOME", "~nobody-of-this-name/almanac")
    with pytest.raises(SettingsError, match="ALMANAC_HOME"):
        read_settings()
