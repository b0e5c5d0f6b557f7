"""The settings: the only module that reads the environment (and `.env`, and secret files).

A base address is only used with a key from the same place, so that a `.env` in received files can't
send the user's key elsewhere. `python -m pipeline.settings` prints docs/settings.md. Belongs here:
the settings and their validation. Does not: their use.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from pipeline.configuration import (
    NO_PROXY,
    DagsterEnvironment,
    DeploymentSettings,
    Hook,
    MachineSettings,
    NetworkSettings,
    Place,
    PushSettings,
    RetentionSettings,
    ServiceSettings,
    SettingsError,
    hook_of,
    secret_of,
    secrets_in,
)
from resources.service_address import checked_base_url, checked_key
from warehouse.files.storage import others_may_write

if TYPE_CHECKING:
    from resources.http.network import Network

__all__ = ["Settings", "SettingsError", "described", "markdown", "read_settings"]

PREFIX: Final = "ALMANAC_"
ENV_FILE: Final = Path(".env")
_OF_NETWORK: Final = ("proxy", "ca_file")


class Settings(
    PushSettings,
    RetentionSettings,
    MachineSettings,
    DeploymentSettings,
    NetworkSettings,
    ServiceSettings,
):
    """Every setting, each with the prefix `ALMANAC_`. The groups have most of the fields."""

    model_config = ConfigDict(
        defer_build=False, extra="ignore", hide_input_in_errors=True, validate_default=True
    )

    home: Place = Field(
        default=Path("data"), description="The home: the folder of landing and warehouse."
    )
    state: Place = Field(
        default=Path("~/.local/state/almanac"),
        validate_default=True,
        description="The folder for state that all homes of the machine share: the rate and quota "
        "used by each key. Must be on a local disk.",
    )
    alert_url: Hook | None = Field(
        default=None,
        description="The address to which warnings are posted as JSON, once when they begin and "
        "once when they end. Default: not posted.",
    )
    alert_url_file: Place | None = Field(
        default=None,
        description="A file that contains that address and nothing else, since the address may "
        "include a token.",
    )
    digest_url: Hook | None = Field(
        default=None,
        description="The address to which the digest of each day is posted: what became known "
        "since the last one. Slack's webhooks get a message, others JSON. Default: not posted.",
    )
    digest_url_file: Place | None = Field(
        default=None, description="A file that contains that address and nothing else."
    )
    report_dir: Place | None = Field(
        default=None,
        description="The folder to which the asset `daily_report` writes a report after each daily "
        "run, as HTML. Default: there is no such asset.",
    )
    list_separator: Literal[";", "|", ","] | None = Field(
        default=None,
        description="The separator of the lists in an export (categories, coins): semicolon, bar "
        "or comma. Default: learnt from the first export that shows it. `almanac replay` applies "
        "another value to the past.",
    )
    iceberg: str | None = Field(
        default=None,
        pattern=r"^[^.]+(\.[^.]+)?$",
        description="The Iceberg catalog to which the asset `iceberg_tables` writes each "
        "publication, by its name in `.pyiceberg.yaml` or the environment: `CATALOG`, or "
        "`CATALOG.NAMESPACE` if the namespace is not `almanac`. Needs the packages of "
        "`crypto-almanac[lake]`. Default: there is no such asset.",
    )
    bucket: str | None = Field(
        default=None,
        pattern=r"^\w+://[^@]+$",
        description="The folder of a bucket to which each batch is copied before it counts, as "
        "`s3://BUCKET/FOLDER` or another address of `pyarrow.fs`; an empty home is rebuilt from "
        "it. The environment has its credentials (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`). "
        "Default: the home is the only copy.",
    )
    shared: Literal["group"] | None = Field(
        default=None,
        description="`group`: the group can read the files of home and state (0640, folders 0750). "
        "Default: only their owner can (0600 and 0700).",
    )
    _from_file: frozenset[str] = PrivateAttr(default=frozenset())
    """The settings with the value of `.env`, also if it was loaded into the environment before."""

    @field_validator("*", mode="before")
    @classmethod
    def _default_for_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the default for an empty text, which shells and compose files give for an unset
        variable."""
        return cls.model_fields[info.field_name or ""].default if value == "" else value

    @property
    def service_dir(self) -> Path:
        """Where `almanac sandbox` keeps keys, endpoints and deliveries."""
        return self.home / "state" / "service"

    @property
    def mirror_dir(self) -> Path:
        """Where `almanac serve` keeps keys, endpoints, deliveries and its change feed."""
        return self.home / "state" / "mirror"

    @property
    def watch_dir(self) -> Path:
        """Where `almanac watch` keeps its change feed."""
        return self.home / "state" / "watch"

    @property
    def source(self) -> str:
        """The source in the stamp of a home of these settings. Raises SettingsError."""
        address = self.service_address()
        return f"sandbox:{self.sandbox_seed}" if address is None else address[0]

    def service_address(self) -> tuple[str, SecretStr] | None:
        """Return base address and key, None for the embedded sandbox.

        Raises:
            SettingsError: only one of them is set, or one can't be used.
        """
        key = self._key()
        if self.base_url is None and key is None:
            return None
        if self.base_url is None or key is None:
            given, lacking = ("ALMANAC_BASE_URL", "ALMANAC_API_KEY")
            if self.base_url is None:
                given, lacking = lacking, given
            raise SettingsError(
                f"{given} is set, but {lacking} is not. Set both to use a service, or neither to "
                "use the embedded sandbox."
            )
        self._check_same_place()
        try:
            base_url = checked_base_url(self.base_url)
        except ValueError as error:
            raise SettingsError(f"ALMANAC_BASE_URL: {error}") from error
        try:
            return base_url, checked_key(key)
        except ValueError as error:
            name = "ALMANAC_API_KEY" if self.api_key_file is None else "ALMANAC_API_KEY_FILE"
            raise SettingsError(f"{name}: {error}") from error

    def mirror_key(self) -> SecretStr | None:
        """Return the key for a mirror, None if none is set or the key is for a service.

        Raises:
            SettingsError: it can't be read; the text does not show it.
        """
        return self._key() if self.base_url is None else None

    def network(self) -> "Network":
        """Return proxies and certificates for the requests to other machines.

        Raises:
            SettingsError: one of them can't be used; the text shows no password.
        """
        # Imported here, since it imports the HTTP library.
        from httpx import InvalidURL

        from resources.http.network import Network

        self._check_network_place()
        is_direct = self.proxy is not None and self.proxy.get_secret_value() == NO_PROXY
        proxy = None if is_direct else self.proxy
        found = Network(proxy, self.ca_file, is_direct=is_direct)
        try:
            found.http_client().close()
        except OSError as error:
            raise SettingsError(
                "ALMANAC_CA_FILE or SSL_CERT_FILE: no certificates can be read from it "
                f"({error.strerror or error}); expected a PEM file."
            ) from None
        except (ValueError, InvalidURL, ImportError) as error:
            raise SettingsError(f"HTTPS_PROXY, HTTP_PROXY or ALL_PROXY: {error}.") from None
        return found

    def _check_network_place(self) -> None:
        """Check that no `.env` sets proxy or certificates for a key from elsewhere.

        Raises:
            SettingsError: it does: its author could read the requests.
        """
        given = [name for name in _OF_NETWORK if name in self._from_file]
        name = "api_key" if self.api_key is not None else "api_key_file"
        if given and self._key() is not None and name not in self._from_file:
            raise SettingsError(
                f"{ENV_FILE.absolute()} sets {PREFIX}{given[0].upper()}, and the key is not set "
                "there. The author of that file could read your key. No request was sent; set both "
                "in the environment, or both in a .env of your own."
            )

    @property
    def alerts(self) -> bool:
        """Whether an alert address is set."""
        return self.alert_url is not None or self.alert_url_file is not None

    def alert_address(self) -> SecretStr | None:
        """Return the address to which warnings are posted, None if none is set.

        Raises:
            SettingsError: the address can't be used; the text does not show it.
        """
        return hook_of(PREFIX + "ALERT_URL", self.alert_url, self.alert_url_file)

    @property
    def digests(self) -> bool:
        """Whether an address for digests is set."""
        return self.digest_url is not None or self.digest_url_file is not None

    def digest_address(self) -> SecretStr | None:
        """Return the address to which digests are posted, None if none is set.

        Raises:
            SettingsError: the address can't be used; the text does not show it.
        """
        return hook_of(PREFIX + "DIGEST_URL", self.digest_url, self.digest_url_file)

    @property
    def push(self) -> bool:
        """Whether secrets are set, so that webhooks are to be received."""
        return self.webhook_secrets is not None or self.webhook_secrets_file is not None

    def signing_secrets(self) -> tuple[SecretStr, ...]:
        """Return the signing secrets of the webhook endpoint, empty if none is set.

        Raises:
            SettingsError: both settings are set, or they have no secret that can be used.
        """
        name = PREFIX + "WEBHOOK_SECRETS"
        found = secret_of(name, self.webhook_secrets, self.webhook_secrets_file)
        return secrets_in(name if self.webhook_secrets_file is None else f"{name}_FILE", found)

    @property
    def group_reads(self) -> bool:
        """Whether the group of a file may read it."""
        return self.shared == "group"

    @property
    def files_of_secrets(self) -> dict[str, Path]:
        """Return the files that contain a secret, by setting or name."""
        found = {"ALMANAC_API_KEY_FILE": self.api_key_file}
        found["ALMANAC_ALERT_URL_FILE"] = self.alert_url_file
        found["ALMANAC_DIGEST_URL_FILE"] = self.digest_url_file
        found["ALMANAC_WEBHOOK_SECRETS_FILE"] = self.webhook_secrets_file
        if self._from_file & {
            "api_key",
            "alert_url",
            "digest_url",
            "proxy",
            "webhook_secrets",
        }:
            found[str(ENV_FILE)] = ENV_FILE.absolute()
        return {name: path for name, path in found.items() if path is not None}

    def _check_same_place(self) -> None:
        """Check that address and key come from one place.

        Raises:
            SettingsError: one of them is in `.env`, the other is not.
        """
        name = "api_key" if self.api_key is not None else "api_key_file"
        in_file = {"base_url", name} & self._from_file
        places = {setting: "" if setting in in_file else "not " for setting in ("base_url", name)}
        way_out = (
            "The author of that file could send your key elsewhere. No request was sent; set "
            "both in the environment, or both in a .env of your own."
        )
        if len(in_file) == 1:
            message = " and ".join(
                f"{PREFIX}{setting.upper()} is {place}set in {ENV_FILE.absolute()}"
                for setting, place in places.items()
            )
            raise SettingsError(f"{message}; expected both from the same place. {way_out}")
        file = self.api_key_file
        if file is not None and in_file and not _lies_in(file, ENV_FILE.absolute().parent):
            raise SettingsError(
                f"{ENV_FILE.absolute()} sets a base address, and a key file outside its folder. "
                f"{way_out}"
            )

    def _key(self) -> SecretStr | None:
        return secret_of(PREFIX + "API_KEY", self.api_key, self.api_key_file)


def read_settings() -> Settings:
    """Read the settings.

    Raises:
        SettingsError: a setting can't be used; the text names it and shows no value.
    """
    environment = _find_settings(os.environ)
    from_file = {
        name: value
        for name, value in _read_env_file().items()
        if environment.get(name, value) == value
    }
    try:
        settings = Settings.model_validate({**from_file, **environment})
        settings._from_file = frozenset(from_file)
        settings._dagster_home = DagsterEnvironment.model_validate(dict(os.environ)).folder
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0])
        name = name if name.isupper() else PREFIX + name.upper()
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name}: {message}") from None
    return settings


def _find_settings(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Return the value of each setting that variables have, in capitals or small letters."""
    found = {
        name.lower().removeprefix(PREFIX.lower()): value
        for name, value in variables.items()
        if value is not None and name.upper().startswith(PREFIX)
    }
    return {name: value for name, value in found.items() if name in Settings.model_fields}


def _read_env_file() -> dict[str, str]:
    """Return the values of settings in `.env`.

    Raises:
        SettingsError: `.env` has settings, and other users may write to it; or it is not UTF-8.
    """
    if not ENV_FILE.is_file():
        return {}
    # Imported here, since few folders have such a file.
    from dotenv import dotenv_values

    try:
        found = _find_settings(dotenv_values(ENV_FILE))
    except UnicodeDecodeError:
        raise SettingsError(
            f"{ENV_FILE.absolute()} is not UTF-8. Nothing was read from it; save it as UTF-8, or "
            "start almanac in another folder."
        ) from None
    if found and others_may_write(ENV_FILE.stat()):
        raise SettingsError(
            f"{ENV_FILE.absolute()} contains settings, and other users may write to it. Nothing "
            "was read from it; take ownership of it (chown, chmod 600), or start almanac in "
            "another folder."
        )
    return found


def _lies_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def described() -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every setting, for docs/settings.md."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        default = field.default
        text = ",".join(default) if isinstance(default, tuple) else default
        shown = "" if field.default_factory or text in (None, "") else f"`{text}`"
        rows.append((PREFIX + name.upper(), shown, field.description or ""))
    return rows


_HEAD = """# Settings

Generated from `pipeline/settings.py` and `pipeline/configuration.py`. To change this page, edit
them and run `python -m pipeline.settings > docs/settings.md`.

Set each as an environment variable, or in the file `.env` of the folder where you start `almanac`.

Base address and key must come from the same place: both from the environment, or both from `.env`.
A key file named in `.env` must be in the folder of that `.env`. Otherwise a `.env` in files that
you received could send your key elsewhere. Almanac refuses a `.env` that others may write to.

The files that Almanac creates in home and state belong to their owner only, or also to the group
(`ALMANAC_SHARED`). `almanac doctor` reports files that others can read, and `almanac doctor --fix`
restricts them. A file that you name (`--output`) gets the permissions of your own umask.

Proxy and certificates must come from the same place as the key, too. `HTTP_PROXY`, `HTTPS_PROXY`,
`ALL_PROXY` and `NO_PROXY` (also in lower case), `SSL_CERT_FILE` and `SSL_CERT_DIR` are read from
the environment alone. `almanac doctor` shows what is in use, without the password. Webhooks of
`almanac sandbox` are sent without a proxy ([push.md](push.md)).

`DAGSTER_HOME` names the folder of the Dagster instance to use, if it is not `dagster` in the home:
[composing.md](composing.md). It is taken from the environment alone.

| Setting | Default | Meaning |
|---|---|---|
"""


def markdown() -> str:
    """Return docs/settings.md."""
    rows = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in described()]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
