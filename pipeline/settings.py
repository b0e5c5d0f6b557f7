"""The settings: the one module that reads the environment (and `.env`, and secret files).

Belongs here: what can be set, and whether it makes sense. Does not: what is done with it.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import httpx
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from catalog.contract import decisions
from catalog.contract.plans import PLANS
from resources.client import checked_base_url
from resources.transport import checked_key

PREFIX: Final = "ALMANAC_"


class SettingsError(Exception):
    """A setting that can't be used; nothing was done. The text shows no secret."""


def _split(value: Any) -> Any:
    """Return the parts of a comma list; what is no text is left to the type."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _known_plan(name: str) -> str:
    if name.lower() not in PLANS:
        raise ValueError(f"there is no plan {name!r}; it is one of {', '.join(PLANS)}")
    return name.lower()


def _nothing(value: Any) -> Any:
    """Read an empty text as not set, as shells and compose files leave it."""
    return None if value == "" else value


def _hook(address: SecretStr) -> SecretStr:
    """Check the address of a hook; what is wrong is told without showing it."""
    try:
        url = httpx.URL(address.get_secret_value().strip())
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("expected an address of the form https://host[:port]/path")
    if url.userinfo or url.fragment:
        raise ValueError("the address must have no user and no fragment")
    return SecretStr(str(url))


def _expanded(path: Path) -> Path:
    """Return a path with `~` read as a shell does: in a file or a unit none has read it."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"the home of that user is not known: {path}") from error


CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Place = Annotated[Path, AfterValidator(_expanded)]
Hook = Annotated[SecretStr, AfterValidator(_hook)]
PlanName = Annotated[str, AfterValidator(_known_plan)]
Unset = BeforeValidator(_nothing)


class Settings(BaseSettings):
    """Every setting, each with the prefix `ALMANAC_`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", extra="ignore", hide_input_in_errors=True
    )

    base_url: Annotated[str | None, Unset] = Field(
        default=None,
        description="Base address of the service, with or without `/v2`. Together with the key, "
        "or not at all: without both it is the embedded sandbox.",
    )
    api_key: Annotated[SecretStr | None, Unset] = Field(
        default=None, description="The API key. Better kept in a file: `ALMANAC_API_KEY_FILE`."
    )
    api_key_file: Annotated[Place | None, Unset] = Field(
        default=None, description="A file that holds the API key and nothing else."
    )
    plan: Annotated[PlanName | None, Unset] = Field(
        default=None,
        description=f"The plan of the key: {', '.join(PLANS)}. Unset, the service is asked.",
    )
    home: Place = Field(
        default=Path("data"), description="Where everything lives: landing, lake, warehouse, state."
    )
    state: Place = Field(
        default=Path("~/.local/state/almanac"),
        validate_default=True,
        description="Where the machine keeps what all homes share: for each key, the rate and the "
        "quota that were used. On a local disk.",
    )
    rate_per_s: Annotated[float | None, Unset] = Field(
        default=None,
        gt=0,
        description="Requests a second of this machine. Unset, the plan's. Where several machines "
        "use one key, give each its share of rate, burst and quota.",
    )
    burst: Annotated[int | None, Unset] = Field(
        default=None, ge=1, description="Requests at once, of this machine. Unset, the plan's."
    )
    monthly_quota: Annotated[int | None, Unset] = Field(
        default=None,
        ge=1,
        description="Requests a month of this machine. Unset, what the service says is left.",
    )
    reserve: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="The part of the month's quota that polls and backfills leave to daily looks.",
    )
    daily_quota: Annotated[int | None, Unset] = Field(
        default=None, ge=1, description="Requests a month of daily looks. Unset, what is left."
    )
    polls_quota: Annotated[int | None, Unset] = Field(
        default=None,
        ge=0,
        description="Requests a month of polls between the daily looks. Unset, all but the "
        "reserve; 0 is none.",
    )
    backfill_quota: Annotated[int | None, Unset] = Field(
        default=None, ge=1, description="Requests a month of backfills. Unset, all but the reserve."
    )
    poll_interval_s: int = Field(
        default=900, ge=0, description="The least seconds between two polls."
    )
    export_path: str = Field(
        default=decisions.EXPORT_PATH, description="Path of the bulk export on the service."
    )
    coins: CommaList = Field(
        default=(), description="Coins to pull (slugs, separated by commas). Unset, all."
    )
    categories: CommaList = Field(
        default=(), description="Categories to pull (ids, separated by commas). Unset, all."
    )
    alert_url: Annotated[Hook | None, Unset] = Field(
        default=None,
        description="Where warnings are posted as JSON when they begin, every day that they last, "
        "and when they are over. Unset, nowhere.",
    )
    alert_url_file: Annotated[Place | None, Unset] = Field(
        default=None,
        description="A file that holds that address and nothing else: it may carry a token.",
    )
    sandbox_seed: int = Field(
        default=1, description="Which world the embedded sandbox is; the same seed is the same."
    )

    @field_validator(
        *("home", "state", "export_path", "sandbox_seed", "reserve", "poll_interval_s"),
        mode="before",
    )
    @classmethod
    def _default_for_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        return cls.model_fields[info.field_name or ""].default if value == "" else value

    @property
    def service_dir(self) -> Path:
        """Where `almanac sandbox` and `almanac serve` keep keys, endpoints and deliveries."""
        return self.home / "state" / "service"

    @property
    def source(self) -> str:
        """What a home of these settings is stamped with. Raises SettingsError."""
        address = self.service_address()
        return f"sandbox:{self.sandbox_seed}" if address is None else address[0]

    def service_address(self) -> tuple[str, SecretStr] | None:
        """Return base address and key, None for the embedded sandbox.

        Raises:
            SettingsError: one without the other, or one that can't be used.
        """
        key = self._key()
        if self.base_url is None and key is None:
            return None
        if self.base_url is None or key is None:
            given, lacking = ("ALMANAC_BASE_URL", "ALMANAC_API_KEY")
            if self.base_url is None:
                given, lacking = lacking, given
            raise SettingsError(
                f"{given} is set, but {lacking} is not. Set both to use a service, or neither "
                "for the embedded sandbox."
            )
        try:
            base_url = checked_base_url(self.base_url)
        except ValueError as error:
            raise SettingsError(f"ALMANAC_BASE_URL: {error}") from error
        try:
            return base_url, checked_key(key)
        except ValueError as error:
            name = "ALMANAC_API_KEY" if self.api_key_file is None else "ALMANAC_API_KEY_FILE"
            raise SettingsError(f"{name}: {error}") from error

    @property
    def alerts(self) -> bool:
        """Whether there is an address that warnings are posted to."""
        return self.alert_url is not None or self.alert_url_file is not None

    def alert_address(self) -> SecretStr | None:
        """Return the address that warnings are posted to, None where none is set.

        Raises:
            SettingsError: it can't be used; the text does not show it.
        """
        address = _secret("ALERT_URL", self.alert_url, self.alert_url_file)
        try:
            return None if address is None else _hook(address)
        except ValueError as error:
            raise SettingsError(f"ALMANAC_ALERT_URL_FILE: {error}") from error

    def _key(self) -> SecretStr | None:
        return _secret("API_KEY", self.api_key, self.api_key_file)


def _secret(name: str, given: SecretStr | None, file: Path | None) -> SecretStr | None:
    """Return a secret that was given itself or in a file, None for neither.

    Raises:
        SettingsError: both, or a file without one.
    """
    if given is not None and file is not None:
        raise SettingsError(f"{PREFIX}{name} and {PREFIX}{name}_FILE are both set; keep one.")
    if file is None:
        return given
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{PREFIX}{name}_FILE: {file} can't be read") from error
    if not text:
        raise SettingsError(f"{PREFIX}{name}_FILE: {file} is empty")
    return SecretStr(text)


def read_settings() -> Settings:
    """Read the settings.

    Raises:
        SettingsError: one of them can't be used; the text names it and shows no value.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = PREFIX + str(first["loc"][0]).upper()
        said = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name}: {said}") from None


def described() -> list[tuple[str, str, str]]:
    """Return name, default and meaning of every setting, for docs/settings.md."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = "" if field.default_factory or default in (None, ()) else f"`{default}`"
        rows.append((PREFIX + name.upper(), shown, field.description or ""))
    return rows
