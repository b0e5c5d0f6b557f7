"""Types of settings with their validation: comma lists, paths, plans, hooks; secrets of files."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic_settings import NoDecode

from almanac.user_files import local_path
from catalog.contract.constants import ACCEPTED_FORMS, AcceptedForm
from catalog.contract.plans import PLANS

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
        SettingsError: as `secret_of`, or it is no address; the text does not show it.
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
        ValueError: it is no address of a proxy, or its package is missing; it is not shown.
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
            raise ValueError(f"{owner!r} is no owner; expected an e-mail address or team:NAME")
    return owners


SignatureForms = Annotated[tuple[AcceptedForm, ...], NoDecode, BeforeValidator(_signature_forms)]
CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Owners = Annotated[CommaList, AfterValidator(_known_owners)]
Place = Annotated[Path, AfterValidator(_expanded)]
ProxyAddress = Annotated[SecretStr, AfterValidator(checked_proxy)]
Hook = Annotated[SecretStr, AfterValidator(checked_hook)]
KeyPrefix = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_key_parts)]
NamePrefix = Annotated[str, AfterValidator(_name_prefix)]
PlanName = Annotated[str, AfterValidator(_known_plan)]
