"""Groups of settings, each a class of fields that `Settings` inherits, and their types.

Only pipeline/settings.py reads their values.
"""

import re
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
)

from almanac.user_files import local_path
from catalog.contract import constants
from catalog.contract.constants import ACCEPTED_FORMS, AcceptedForm
from catalog.contract.plans import PLANS
from resources.service_clock import MAX_SKEW
from warehouse.files.locks import WAIT_S
from warehouse.making_limits import USUAL_LIMITS, MakingLimits, cores, memory_bytes

LEAST_POLL_INTERVAL_S: Final = 900
"""The default least interval between two polls."""
_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OWNER: Final = re.compile(r"team:[A-Za-z0-9_-]+|[\w.+-]+@[\w-]+(\.[\w-]+)+", re.ASCII)
_NAME_TEXT: Final = "expected a letter, then letters, digits and underscores"


class SettingsError(Exception):
    """A setting can't be used; nothing was done. The text shows no secret."""


def secret_of(name: str, given: SecretStr | None, file: Path | None) -> SecretStr | None:
    """Return a secret from the setting of this name or from its file, None if neither is set.

    Raises:
        SettingsError: both are set, or the file is unreadable or empty.
    """
    if given is not None and file is not None:
        raise SettingsError(f"{name} and {name}_FILE are both set; keep only one.")
    if file is None:
        return given
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"{name}_FILE: {file} can't be read: {why}") from error
    if not text:
        raise SettingsError(f"{name}_FILE: {file} is empty")
    return SecretStr(text)


def hook_of(name: str, given: SecretStr | None, file: Path | None) -> SecretStr | None:
    """Return the address of a hook, None if it is not set.

    Raises:
        SettingsError: as `secret_of`, or it is not an address; the text does not show it.
    """
    address = secret_of(name, given, file)
    try:
        return None if address is None else checked_hook(address)
    except ValueError as error:
        raise SettingsError(f"{name}_FILE: {error}") from error


def _split(value: Any) -> Any:
    """Return the parts of a comma list; other values are left to the type."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _signature_forms(value: Any) -> Any:
    """Return the forms in a comma list, in which one has a comma in its name."""
    if not isinstance(value, str):
        return value
    found = tuple(re.findall(r"t,v1(?=\s*,|\s*$)|[^,\s]+", value))
    if unknown := [form for form in found if form not in ACCEPTED_FORMS]:
        raise ValueError(
            f"there is no form {unknown[0]!r}; expected some of {', '.join(ACCEPTED_FORMS)}"
        )
    if not found:
        raise ValueError(f"no form is allowed; expected some of {', '.join(ACCEPTED_FORMS)}")
    return found


def _known_plan(name: str) -> str:
    if name.lower() not in PLANS:
        raise ValueError(f"there is no plan {name!r}; expected one of {', '.join(PLANS)}")
    return name.lower()


def checked_hook(address: SecretStr) -> SecretStr:
    """Check the address of a hook; errors do not show it."""
    # Imported here, since few settings have a hook, and every command reads the settings.
    import httpx

    try:
        url = httpx.URL(address.get_secret_value().strip())
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("expected an address of the form https://host[:port]/path")
    if url.userinfo or url.fragment:
        raise ValueError("the address must have no user and no fragment")
    return SecretStr(str(url))


def checked_proxy(address: SecretStr) -> SecretStr:
    """Return the address of a proxy, with a scheme; `none` is returned as it is.

    Raises:
        ValueError: it is not a proxy address, or its package is missing; it is not shown.
    """
    text = address.get_secret_value().strip()
    if text.lower() == "none":
        return SecretStr("none")
    import httpx

    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL:
        url = httpx.URL("")
    is_bare = url.path in ("", "/") and not url.query and not url.fragment
    is_bare &= url.port is None or 0 < url.port < 1 << 16
    if url.scheme not in _PROXY_SCHEMES or not url.host or not is_bare:
        raise ValueError(
            "expected the address of a proxy, of the form http://[USER:PASSWORD@]HOST[:PORT]; "
            f"other schemes are {', '.join(_PROXY_SCHEMES[1:])}"
        )
    if url.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError(
            "a SOCKS proxy needs the package socksio, which is not installed. Install it beside "
            "Almanac (pip install 'httpx[socks]'), or set an HTTP proxy"
        )
    return SecretStr(str(url).rstrip("/"))


def _expanded(path: Path) -> Path:
    """Return a path with `~` expanded, since no shell expands it in a file or a unit.

    Raises:
        ValueError: it is an address such as `s3://`, or that user has no folder.
    """
    try:
        return local_path(path, "the path")
    except RuntimeError as error:
        raise ValueError(f"that user has no known home folder: {path}") from error


def _key_parts(value: Any) -> Any:
    """Return the parts of an asset key; other values are left to the type."""
    if not isinstance(value, str):
        return value
    parts = tuple(part.strip() for part in value.split("/"))
    for part in parts:
        if not _NAME.fullmatch(part):
            raise ValueError(f"{part!r} can't be part of an asset key; {_NAME_TEXT}")
    return parts


def _name_prefix(value: str) -> str:
    if value and not _NAME.fullmatch(value):
        raise ValueError(f"{value!r} can't be part of a name; {_NAME_TEXT}")
    return value


def _known_owners(owners: tuple[str, ...]) -> tuple[str, ...]:
    for owner in owners:
        if not _OWNER.fullmatch(owner):
            raise ValueError(f"{owner!r} is not an owner; expected an e-mail address or team:NAME")
    return owners


SignatureForms = Annotated[tuple[AcceptedForm, ...], BeforeValidator(_signature_forms)]
CommaList = Annotated[tuple[str, ...], BeforeValidator(_split)]
Owners = Annotated[CommaList, AfterValidator(_known_owners)]
Place = Annotated[Path, AfterValidator(_expanded)]
ProxyAddress = Annotated[SecretStr, AfterValidator(checked_proxy)]
Hook = Annotated[SecretStr, AfterValidator(checked_hook)]
KeyPrefix = Annotated[tuple[str, ...], BeforeValidator(_key_parts)]
NamePrefix = Annotated[str, AfterValidator(_name_prefix)]
PlanName = Annotated[str, AfterValidator(_known_plan)]


class SettingsGroup(BaseModel):
    """A part of `Settings`. Pydantic builds the validators of the whole, and none of the parts."""

    model_config = ConfigDict(defer_build=True)


class ServiceSettings(SettingsGroup):
    """The requests to the service, and their limits."""

    base_url: str | None = Field(
        default=None,
        description="Base address of the service, with or without `/v2`. Set it together with the "
        "key; without both, Almanac uses the embedded sandbox.",
    )
    api_key: SecretStr | None = Field(
        default=None, description="The API key. A file is safer: `ALMANAC_API_KEY_FILE`."
    )
    api_key_file: Place | None = Field(
        default=None, description="A file that contains the API key and nothing else."
    )
    plan: PlanName | None = Field(
        default=None,
        description=f"The plan of the key: {', '.join(PLANS)}. Default: what the service reports.",
    )
    rate_per_s: float | None = Field(
        default=None,
        gt=0,
        description="Requests per second for this machine. Default: as the service states, else "
        "the plan's. Machines that use one key each need a share of its rate, burst and quota.",
    )
    burst: int | None = Field(
        default=None,
        ge=1,
        description="Requests that this machine may send together. Default: as for the rate.",
    )
    monthly_quota: int | None = Field(
        default=None,
        ge=1,
        description="Requests per month for this machine. Default: what the service reports.",
    )
    reserve: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="The part of the monthly quota that polls and backfills leave to daily pulls.",
    )
    poll_interval_s: int = Field(
        default=LEAST_POLL_INTERVAL_S,
        ge=0,
        description="The shortest time between two polls, in seconds.",
    )
    export_path: str = Field(
        default=constants.EXPORT_PATH, description="Path of the bulk export on the service."
    )
    page_size: int = Field(
        default=constants.EVENTS_LIMIT_MAX,
        ge=1,
        le=constants.EVENTS_LIMIT_MAX,
        description="The most events or cancellations to request in one page, for a service that "
        "refuses pages of 100.",
    )
    export_interval_s: float = Field(
        default=60.0,
        ge=0,
        le=900,
        description="Seconds between two bulk exports of the key, on the whole machine: a service "
        "limits them apart from other requests. The embedded sandbox has no such limit.",
    )
    coins: CommaList = Field(
        default=(), description="Coins to pull (slugs, separated by commas). Default: all."
    )
    categories: CommaList = Field(
        default=(), description="Categories to pull (ids, separated by commas). Default: all."
    )
    max_clock_skew_days: float = Field(
        default=MAX_SKEW / timedelta(days=1),
        gt=0,
        le=36_500,
        description="A `Date` of the service further than this from the machine's clock is "
        "ignored. Raise it for a service with a set time, such as `almanac sandbox --now`.",
    )
    sandbox_seed: int = Field(
        default=1,
        description="The seed of the embedded sandbox; the same seed gives the same catalog.",
    )


NO_PROXY: Final = "none"


class NetworkSettings(SettingsGroup):
    """How other machines are reached: the service, and the addresses of alerts and digests."""

    proxy: ProxyAddress | None = Field(
        default=None,
        description="The proxy of all requests to other machines: "
        "`http://[USER:PASSWORD@]HOST[:PORT]`, or `https`, `socks5` or `socks5h` in place of "
        "`http`; `none` for no proxy. Default: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and "
        "`NO_PROXY` of the environment. The embedded sandbox is reached without a proxy.",
    )
    ca_file: Place | None = Field(
        default=None,
        description="A PEM file with certificates of authorities that are trusted in addition to "
        "the public ones, for a service or a proxy with a private authority. `SSL_CERT_FILE` and "
        "`SSL_CERT_DIR` of the environment replace the public ones.",
    )


LEAST_SECRET: Final = 16
"""Characters of the shortest secret; a shorter one could be guessed."""


def secrets_in(name: str, given: SecretStr | None) -> tuple[SecretStr, ...]:
    """Return the secrets in the text of the setting `name`, separated by commas or line ends.

    Raises:
        SettingsError: one can't be used; the text does not show it.
    """
    if given is None:
        return ()
    found = [part.strip() for part in re.split(r"[,\n]", given.get_secret_value())]
    secrets = tuple(SecretStr(part) for part in found if part)
    if not secrets:
        raise SettingsError(f"{name} has no secret; expected one or more, separated by commas.")
    if any(len(secret) < LEAST_SECRET for secret in secrets):
        raise SettingsError(
            f"{name} has a secret of fewer than {LEAST_SECRET} characters, which could be guessed; "
            "expected those that the service shows for the endpoint."
        )
    return secrets


class PushSettings(SettingsGroup):
    """How webhooks are received (`almanac receive`)."""

    webhook_secrets: SecretStr | None = Field(
        default=None,
        description="The signing secrets of the webhook endpoint, separated by commas: more than "
        "one while a secret rotates. A file is safer: `ALMANAC_WEBHOOK_SECRETS_FILE`.",
    )
    webhook_secrets_file: Place | None = Field(
        default=None,
        description="A file that contains the secrets, one a line, and nothing else. It is read "
        "again when it changes.",
    )
    signature_header: str = Field(
        default=constants.SIGNATURE_HEADER,
        pattern=r"^[A-Za-z0-9-]{1,100}$",
        description="The header of a webhook that has the signature.",
    )
    signature_forms: SignatureForms = Field(
        default=constants.ACCEPTED_FORMS,
        description="The forms of signatures that are accepted, separated by commas: "
        f"{', '.join(f'`{form}`' for form in constants.ACCEPTED_FORMS)}. Which one a delivery has "
        "is told from its header. Allow only what your service sends.",
    )
    push_silence_h: float = Field(
        default=24.0,
        gt=0,
        description="Hours without a delivery after which `almanac status` warns, once push was "
        "received, and polls return to the schedule without push.",
    )
    push_poll_interval_s: int = Field(
        default=21_600,
        ge=0,
        description="The shortest time between two polls of the same dates while push brings the "
        "changes, in seconds: push does not report withdrawals.",
    )


Executor = Literal["in_process", "multiprocess", "deployment"]
EVERYTHING_ON: Final = "all"
NOTHING_ON: Final = "none"


class DeploymentSettings(SettingsGroup):
    """How the definitions fit into a deployment that others share."""

    key_prefix: KeyPrefix = Field(
        default=(),
        description="A prefix of all asset keys, its parts separated by `/`. Default: none.",
    )
    group_prefix: NamePrefix = Field(
        default="", description="A prefix of the names of asset groups. Default: none."
    )
    name_prefix: NamePrefix = Field(
        default="",
        description="A prefix of the names of jobs, schedules, sensors, ops, pools and resources, "
        "such as `almanac_`. Default: none.",
    )
    executor: Executor = Field(
        default="in_process",
        description="How steps of a run are executed: `in_process`; `multiprocess`, each step in a "
        "process of its own, which takes seconds to start; or `deployment`, as the definitions say "
        "with which these are merged. Only with the first are killed runs noticed immediately.",
    )
    owners: Owners = Field(
        default=("team:almanac",),
        description="The owners of all assets, separated by commas: e-mail addresses, or names of "
        "teams such as `team:data`. Default: `team:almanac`.",
    )
    automation: CommaList = Field(
        default=(EVERYTHING_ON,),
        description="The schedules and sensors that are on at first, by their names without "
        "prefix, separated by commas; `all` or `none`. The Dagster UI switches each on and off.",
    )
    _dagster_home: Path | None = PrivateAttr(default=None)

    @property
    def dagster_home(self) -> Path | None:
        """The folder of the Dagster instance to use (`DAGSTER_HOME`), None for the home's own."""
        return self._dagster_home

    def is_on(self, name: str) -> bool:
        """Whether a schedule or sensor is on until a person switches it."""
        return EVERYTHING_ON in self.automation or name in self.automation


class DagsterEnvironment(BaseModel):
    """Variables that Dagster reads from the environment, and never from a `.env` of ours: a
    `dagster.yaml` names code to execute."""

    model_config = ConfigDict(extra="ignore")

    home: Place | None = Field(default=None, validation_alias="DAGSTER_HOME")

    @property
    def folder(self) -> Path | None:
        """The folder of the instance, absolute; None if it is not set."""
        return None if self.home in (None, Path()) else self.home.absolute()


_SHARE: Final = 0.4
"""The part of the memory that DuckDB may use; Dagster's programs and a run need the rest."""
_LEAST_BYTES: Final = 200_000_000


class MachineSettings(SettingsGroup):
    """The capacity of a process on its machine or container."""

    wait_s: float = Field(
        default=WAIT_S,
        ge=0,
        description="Seconds that a command waits for another command that uses the home.",
    )
    sql_memory: ByteSize = Field(
        default="2GB",
        ge=100_000_000,
        validate_default=True,
        description="Memory of `almanac sql`; beyond it a query spills to disk, twice as much.",
    )
    sql_threads: int | None = Field(
        default=None, ge=1, description="Threads of such a query. Default: one per core."
    )
    sql_timeout_s: float = Field(
        default=300.0, gt=0, description="Seconds after which such a query is stopped."
    )
    duckdb_memory: ByteSize | None = Field(
        default=None,
        ge=100_000_000,
        description="Memory of DuckDB in a merge and a publication; beyond it they spill to disk. "
        "Default: 40 % of the memory of the machine or container, at most 1.3 GB.",
    )
    duckdb_threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads of DuckDB in a merge and a publication. Default: one per core that "
        "the machine or container may use.",
    )

    @property
    def making_limits(self) -> MakingLimits:
        """DuckDB's limits while it makes the warehouse."""
        memory = self.duckdb_memory
        if memory is None:
            share = max(int(memory_bytes() * _SHARE), _LEAST_BYTES)
            memory = ByteSize(min(share, USUAL_LIMITS.memory_bytes))
        return MakingLimits(int(memory), self.duckdb_threads or cores())


class RetentionSettings(SettingsGroup):
    """The records that `almanac prune` and its nightly job keep."""

    keep_days: int = Field(
        default=60,
        ge=1,
        description="Days that runs in Dagster, request logs, and files which were set aside are "
        "kept. A run stays longer while it has the latest materialisation of an asset or "
        "partition.",
    )
