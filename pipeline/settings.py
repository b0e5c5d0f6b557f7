"""The settings: the only module that reads the environment, `.env` and files of secrets.

A base address is only used with a key from the same place, so that a `.env` in received files can't
send the user's key elsewhere. `python -m pipeline.settings` prints docs/settings.md.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict, sources

from almanac.core.errors import AlmanacError
from almanac.user_files import local_path
from catalog.contract import constants
from catalog.contract.records import EVENT_FIELDS
from resources.credentials import check_base_url, check_key
from resources.service_clock import MAX_SKEW
from warehouse.duckdb_limits import USUAL_LIMITS, DuckDBLimits, cores, memory_bytes
from warehouse.files.locks import WAIT_S
from warehouse.files.storage import is_writable_by_others

if TYPE_CHECKING:
    from resources.http.network import Network

PREFIX: Final = "ALMANAC_"
ENV_FILE: Final = Path(".env")
_LEAST_SECRET: Final = 16
"""Characters of the shortest signing secret; a shorter one could be guessed."""
_MEMORY_SHARE: Final = 0.4
"""The part of the memory that DuckDB may use; Dagster's programs and a run need the rest."""
_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_SECRETS: Final = ("api_key", "alert_url", "proxy", "webhook_secrets")


class SettingsError(AlmanacError):
    """A setting can't be used; nothing was done. The text shows no secret."""


def _split(value: Any) -> Any:
    """Return the parts of a comma list; other values are left to the type."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def read_columns(value: str | dict[str, str]) -> dict[str, str]:
    """Return the field of each column, from `name=field,…`."""
    if isinstance(value, dict):
        return value
    parts = [part.partition("=") for part in value.split(",") if part.strip()]
    found = {name.strip(): field.strip() for name, _, field in parts}
    if not found or not all(each in EVENT_FIELDS for each in found.values()):
        raise ValueError(
            "expected COLUMN=FIELD, separated by commas; the fields are " + ", ".join(EVENT_FIELDS)
        )
    return found


def _hook(address: SecretStr) -> SecretStr:
    """Return the address of a hook; errors do not show it."""
    url = _parse(address.get_secret_value().strip())
    if url is None or url.scheme not in ("http", "https") or url.username or url.fragment:
        raise ValueError("expected an address of the form https://host[:port]/path")
    return SecretStr(url.geturl())


def _proxy(address: SecretStr) -> SecretStr:
    """Return the address of a proxy, with a scheme; `none` as it is. Errors do not show it."""
    text = address.get_secret_value().strip()
    if text.lower() == "none":
        return SecretStr("none")
    url = _parse(text if "://" in text else f"http://{text}")
    rest = "" if url is None else url.path.strip("/") + url.query + url.fragment
    if url is None or url.scheme not in _PROXY_SCHEMES or rest:
        raise ValueError(
            "expected the address of a proxy, of the form http://[USER:PASSWORD@]HOST[:PORT]; "
            f"other schemes are {', '.join(_PROXY_SCHEMES[1:])}; percent-encode USER and PASSWORD"
        )
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError("a SOCKS proxy needs the package socksio: pip install 'httpx[socks]'")
    return SecretStr(url.geturl().rstrip("/"))


def _parse(text: str) -> SplitResult | None:
    """Return the parts of an address with a host, None if it has none or a wrong port."""
    try:
        url = urlsplit(text)
        return url if url.hostname and url.port != 0 and text.isprintable() else None
    except ValueError:
        return None


def _expanded(path: Path) -> Path:
    """Return a path with `~` expanded, since no shell expands it in a file or a unit."""
    try:
        return local_path(path, "the path")
    except RuntimeError as error:
        raise ValueError(f"that user has no known home folder: {path}") from error


Source = sources.PydanticBaseSettingsSource
ExportColumns = Annotated[dict[str, str], BeforeValidator(read_columns)]
CommaList = Annotated[tuple[str, ...], BeforeValidator(_split)]
LocalPath = Annotated[Path, AfterValidator(_expanded)]
Hook = Annotated[SecretStr, AfterValidator(_hook)]


class Settings(BaseSettings):
    """Every setting, each with the prefix `ALMANAC_`. The docstrings are docs/settings.md."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        env_ignore_empty=True,
        enable_decoding=False,
        extra="ignore",
        hide_input_in_errors=True,
        validate_default=True,
    )

    home: LocalPath = Path("data")
    """The home: the folder of landing and warehouse."""
    state: LocalPath = Path("~/.local/state/almanac")
    """The folder of each key's rate and quota, shared by all homes of the machine. Local disk."""
    base_url: str | None = None
    """Base address of the service. Default: the embedded sandbox."""
    api_key: SecretStr | None = None
    """The API key; set it together with the address."""
    secrets_dir: LocalPath | None = None
    """A folder with a file for each secret: `almanac_api_key`, `almanac_alert_url`,
    `almanac_proxy`, `almanac_webhook_secrets`. Read from the environment only."""
    plan: Literal["free", "standard", "pro", "elite", "enterprise"] | None = None
    """The plan of the key: free, standard, pro, elite, enterprise. Default: as the service says."""
    rate_per_s: PositiveFloat | None = None
    """Requests per second of this machine. Default: as the service states, else the plan's."""
    burst: PositiveInt | None = None
    """Requests that this machine may send together. Default: as for the rate."""
    monthly_quota: PositiveInt | None = None
    """Requests per month of this machine. Default: what the service reports."""
    reserve: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """The share of the quota that polls and backfills leave to daily pulls."""
    poll_interval_s: NonNegativeInt = 900
    """Least seconds between two polls."""
    push_poll_interval_s: NonNegativeInt = 21_600
    """Least seconds between two polls of the same dates while push works."""
    export_path: str = constants.EXPORT_PATH
    """Path of the bulk export on the service."""
    export_columns: ExportColumns = {}
    """Columns of an export with other names, and the field of each: `coin_slug=coins,name=title`.
    Each batch keeps the mapping of its pull."""
    export_interval_s: Annotated[float, Field(ge=0, le=900)] = 60.0
    """Seconds between two bulk exports of a key."""
    page_size: Annotated[int, Field(ge=1, le=100)] = constants.EVENTS_LIMIT_MAX
    """The most events or cancellations in a page."""
    list_separator: Literal[";", "|", ","] | None = None
    """The separator of lists in an export: semicolon, bar or comma. Default: learnt from the first
    export. `almanac rebuild` applies another value to the past."""
    coins: CommaList = ()
    """Coins to pull (slugs, separated by commas). Default: all."""
    categories: CommaList = ()
    """Categories to pull (ids, separated by commas). Default: all."""
    max_clock_skew_days: Annotated[float, Field(gt=0, le=36_500)] = MAX_SKEW.days
    """A `Date` of the service further from the machine's clock is ignored. Raise it for
    `almanac sandbox --now`."""
    sandbox_seed: int = 1
    """The seed of the embedded sandbox's catalog."""
    proxy: Annotated[SecretStr, AfterValidator(_proxy)] | None = None
    """The proxy: `http://[USER:PASSWORD@]HOST[:PORT]`, also with `https`, `socks5` or `socks5h`;
    `none` for no proxy. Default: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`."""
    ca_file: LocalPath | None = None
    """A PEM file with certificates to trust beside the public ones."""
    webhook_secrets: SecretStr | None = None
    """The signing secrets of the webhook endpoint, separated by commas or line ends."""
    signature_header: Annotated[str, Field(pattern="^[A-Za-z0-9-]+$")] = constants.SIGNATURE_HEADER
    """The webhook header with the signature."""
    alert_url: Hook | None = None
    """The address to which warnings are posted as JSON."""
    keep_days: PositiveInt = 60
    """Days that request logs, files set aside and ended Dagster runs are kept. Landing is kept."""
    iceberg: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)?$")] | None = None
    """The catalog of the asset `iceberg_tables`, as `CATALOG` or `CATALOG.NAMESPACE` of
    `.pyiceberg.yaml` or the environment. Needs `crypto-almanac[lake]`."""
    bucket: Annotated[str, Field(pattern=r"^\w+://[^@]+$")] | None = None
    """The bucket folder to which each batch is copied before it counts: `s3://BUCKET/FOLDER` or
    another address of `pyarrow.fs`."""
    shared: Literal["group"] | None = None
    """`group`: the group can read home and state (0640, folders 0750). Default: only the owner can
    (0600, 0700)."""
    wait_s: NonNegativeFloat = WAIT_S
    """Seconds that a command waits for another on the home."""
    sql_timeout_s: PositiveFloat = 300.0
    """Seconds after which `almanac sql` stops a query."""
    duckdb_memory: Annotated[ByteSize, Field(ge=100_000_000)] | None = None
    """Memory of DuckDB in a merge; beyond it, it spills to disk. Default: 40 % of the machine's or
    container's memory, at most 1.3 GB."""

    _webhook_file: Path | None = PrivateAttr(default=None)
    _in_env_file: frozenset[str] = PrivateAttr(default=frozenset())
    """The settings with the value of `.env`, also if it was loaded into the environment before."""

    @field_validator("*", mode="before")
    @classmethod
    def _default_for_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the default for an empty file, which containers have where a secret is unset."""
        return cls.model_fields[info.field_name or ""].default if value == "" else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: Source,
        env_settings: Source,
        dotenv_settings: Source,
        file_secret_settings: Source,
    ) -> tuple[Source, ...]:
        """Read the files of secrets from the folder that the environment names."""
        folder = {**env_settings(), **init_settings()}.get("secrets_dir") or None
        if folder is not None and not Path(folder).expanduser().is_dir():
            raise SettingsError(f"ALMANAC_SECRETS_DIR: {folder} is not a folder.")
        files = sources.SecretsSettingsSource(settings_cls, folder)
        return init_settings, env_settings, dotenv_settings, files

    @property
    def service_dir(self) -> Path:
        """Where `almanac sandbox` keeps keys, endpoints and deliveries."""
        return self.home / "state" / "service"

    @property
    def mirror_dir(self) -> Path:
        """Where `almanac serve` keeps keys, endpoints and deliveries."""
        return self.home / "state" / "mirror"

    @property
    def source(self) -> str:
        """The source in the stamp of a home of these settings. Raises SettingsError."""
        address = self.service_address()
        return f"sandbox:{self.sandbox_seed}" if address is None else address[0]

    @property
    def dagster_home(self) -> Path | None:
        """The Dagster instance to use (`DAGSTER_HOME`), None for the home's own.

        Never from a `.env` of ours: a `dagster.yaml` names code to execute.
        """
        text = os.environ.get("DAGSTER_HOME", "")
        return _expanded(Path(text)).absolute() if text else None

    @property
    def group_reads(self) -> bool:
        """Whether the group of a file may read it."""
        return self.shared == "group"

    @property
    def duckdb_limits(self) -> DuckDBLimits:
        """DuckDB's limits while it makes the warehouse."""
        share = max(int(memory_bytes() * _MEMORY_SHARE), 200_000_000)
        usual = min(share, USUAL_LIMITS.memory_bytes)
        return DuckDBLimits(self.duckdb_memory or usual, cores())

    def service_address(self) -> tuple[str, SecretStr] | None:
        """Return base address and key, None for the embedded sandbox.

        Raises:
            SettingsError: only one of them is set, or one can't be used.
        """
        given = {"ALMANAC_BASE_URL": self.base_url, "ALMANAC_API_KEY": self.api_key}
        lacking = [name for name, value in given.items() if value is None]
        if len(lacking) == 1:
            (name,) = given.keys() - {*lacking}
            raise SettingsError(
                f"{name} is set, but {lacking[0]} is not. Set both to use a service, or neither to "
                "use the embedded sandbox."
            )
        if self.base_url is None or self.api_key is None:
            return None
        self._check_place_of_key()
        name = "ALMANAC_BASE_URL"
        try:
            base_url, name = check_base_url(self.base_url), "ALMANAC_API_KEY"
            return base_url, check_key(self.api_key)
        except ValueError as error:
            raise SettingsError(f"{name}: {error}") from None

    def network(self) -> "Network":
        """Return proxy and certificates for the requests to other machines.

        Raises:
            SettingsError: one of them can't be used; the text shows no password.
        """
        from httpx import InvalidURL

        from resources.http.network import Network

        if self.api_key is not None:
            self._check_place_of_key()
        is_direct = self.proxy is not None and self.proxy.get_secret_value() == "none"
        found = Network(None if is_direct else self.proxy, self.ca_file, is_direct=is_direct)
        try:
            found.http_client().close()
        except OSError as error:
            raise SettingsError(
                "ALMANAC_CA_FILE or SSL_CERT_FILE: no certificates can be read from it "
                f"({error.strerror or error}); expected a PEM file."
            ) from None
        except (ValueError, InvalidURL, ImportError):
            # The message of the error may have a part of a password.
            raise SettingsError(
                "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY or NO_PROXY can't be used; expected "
                "http://[USER:PASSWORD@]HOST[:PORT], with USER and PASSWORD percent-encoded. A "
                "SOCKS proxy needs pip install 'httpx[socks]'."
            ) from None
        return found

    @property
    def push(self) -> bool:
        """Whether secrets are set, so that webhooks are to be received."""
        return self.webhook_secrets is not None

    def model_post_init(self, context: Any) -> None:
        """Record whether the signing secrets come from a file, since the file may be removed
        later."""
        name = f"{PREFIX}webhook_secrets".lower()
        self._webhook_file = next(
            (file for file in self.files_of_secrets if file.name == name), None
        )

    def signing_secrets(self) -> tuple[SecretStr, ...]:
        """Return the signing secrets of the webhook endpoint, empty if none is set.

        Raises:
            SettingsError: one can't be used; the text does not show it.
        """
        if self.webhook_secrets is None:
            return ()
        file, text = self._webhook_file, self.webhook_secrets.get_secret_value()
        try:
            text = text if file is None else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"ALMANAC_WEBHOOK_SECRETS: {file} can't be read") from error
        secrets = re.split(r"\s*[,\n]\s*", text.strip(", \n"))
        if min(map(len, secrets)) < _LEAST_SECRET:
            raise SettingsError(
                f"ALMANAC_WEBHOOK_SECRETS has a secret of fewer than {_LEAST_SECRET} characters, "
                "which could be guessed; expected those that the service shows, with commas."
            )
        return tuple(map(SecretStr, secrets))

    @property
    def files_of_secrets(self) -> list[Path]:
        """The files that contain a secret: `.env`, and those of `ALMANAC_SECRETS_DIR`."""
        secrets = {name for name in _SECRETS if getattr(self, name) is not None}
        folder = self.secrets_dir or Path("/nowhere")
        paths = [folder / f"{PREFIX}{name}".lower() for name in sorted(secrets)]
        own = [ENV_FILE.absolute()] if secrets & self._in_env_file else []
        return own + [path for path in paths if path.is_file()]

    def _check_place_of_key(self) -> None:
        """Check that the key and the base address come from the same source: `.env`, or outside it.

        Raises:
            SettingsError: they do not; the author of a `.env` could read the key.
        """
        is_in_file = "api_key" in self._in_env_file
        wrong = {"base_url", "proxy", "ca_file"} & self._in_env_file
        if is_in_file:
            wrong = {"base_url"} - wrong if self.base_url is not None else set()
        for name in sorted(wrong):
            here, there = (f"{PREFIX}{name.upper()}", "the key")[:: -1 if is_in_file else 1]
            raise SettingsError(
                f"{here} is set in {ENV_FILE.absolute()}, and {there} is not set there. The author "
                "of that file could send your key elsewhere. No request was sent; set both in the "
                "environment, or both in a .env of your own."
            )


def read_settings(
    home: str | None = None, environment_names: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings, some from environment variables with other names.

    Raises:
        SettingsError: a setting can't be used; the text names it and shows no value.
    """
    given: dict[str, Any] = {} if home is None else {"home": home}
    for name, variable in (environment_names or {}).items():
        given[name] = os.environ.get(variable)
        if name not in Settings.model_fields or not given[name]:
            # The text does not show the variable's name, which may be a key by mistake.
            raise SettingsError(
                f"environment: {name} is not a setting, or its variable is not set or empty."
            )
    try:
        file = sources.DotEnvSettingsSource(Settings)
    except UnicodeDecodeError:
        raise SettingsError(f"{ENV_FILE.absolute()} is not UTF-8. Nothing was read.") from None
    environment = sources.EnvSettingsSource(Settings)
    in_file = {name: text for name, text in file().items() if name in Settings.model_fields}
    if in_file and is_writable_by_others(ENV_FILE.stat()):
        raise SettingsError(
            f"{ENV_FILE.absolute()} contains settings, and other users may write to it. Nothing "
            "was read from it; take ownership of it (chown, chmod 600)."
        )
    if "secrets_dir" in in_file:
        raise SettingsError(
            f"{ENV_FILE.absolute()} sets ALMANAC_SECRETS_DIR, which is taken from the environment "
            "alone: a .env that you received could send your secrets elsewhere."
        )
    try:
        settings = Settings(**given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{PREFIX}{first['loc'][0]}".upper() + f": {message}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"ALMANAC_SECRETS_DIR: {error}") from None
    used = {**in_file, **environment(), **given}
    same = {name for name, text in in_file.items() if used[name] == text}
    settings._in_env_file = frozenset(same)
    return settings


def describe_settings() -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every setting, for docs/settings.md."""
    rows: list[tuple[str, str, str]] = []
    meanings = _read_docstrings()
    for name, field in Settings.model_fields.items():
        text = ",".join(field.default) if isinstance(field.default, tuple) else field.default
        shown = "" if text in (None, "") else f"`{text}`"
        rows.append((PREFIX + name.upper(), shown, " ".join(meanings[name].split())))
    return rows


def _read_docstrings() -> dict[str, str]:
    """Return the docstring of every setting. Pydantic would read them at each start."""
    found: dict[str, str] = {}
    (declared,) = ast.parse(inspect.getsource(Settings)).body
    for field, text in pairwise(ast.iter_child_nodes(declared)):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=words)):
                found[name] = str(words)
    return found


_HEAD = """# Settings

Generated by `python -m pipeline.settings > docs/settings.md`.

Set each as an environment variable, or in the file `.env` of the folder where you start `almanac`. A secret can also be a file of the
folder `ALMANAC_SECRETS_DIR`. The environment overrides `.env`, and `.env` overrides such a file.

Base address and key must come from the same place: both from the environment and the files of secrets, or both from `.env`. Otherwise
a `.env` that you received could send your key elsewhere. A proxy or certificates in `.env` are refused with a key from elsewhere.
Almanac refuses a `.env` that others may write to.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR` and `DAGSTER_HOME`
([dagster.md](dagster.md)) are read from the environment alone. `almanac doctor` shows the proxy, without its password, and files that
other users can read; `almanac doctor --fix` restricts those.

| Setting | Default | Meaning |
|---|---|---|
"""  # noqa: E501


def make_settings_page() -> str:
    """Return docs/settings.md."""
    rows = [
        f"| `{name}` | {default} | {meaning} |" for name, default, meaning in describe_settings()
    ]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(make_settings_page())
