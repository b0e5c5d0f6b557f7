"""Finds files and settings that could leak the key or data, and restricts the files.

The settings are in settings.py, the meaning of modes in warehouse/files/storage.py.
"""

import os
import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from pipeline.settings import Settings, SettingsError, read_settings
from resources.credentials import LEAST_CHARS, Redactor
from warehouse.files.storage import (
    find_open_files,
    is_readable_by_others,
    keep_private,
    make_private,
)

_SHOWN: Final = 3
_FOLDERS: Final = re.compile(r"(?<![\w:/.])/(?:[^\s/'\":,;()]+/)+")
_LOGIN: Final = re.compile(r"//[^\s'\"]*@")


def restrict_new_files() -> None:
    """Set the modes of files that this process creates; private if the settings can't be used."""
    try:
        keep_private(group_reads=read_settings().group_reads)
    except SettingsError:
        keep_private()


def find_cautions(settings: Settings) -> list[str]:
    """Return the ways in which a secret could leak, a line each, without secrets and folders."""
    found = []
    for path in settings.files_of_secrets:
        with suppress(OSError):  # An unreadable file is reported where it is needed.
            if is_readable_by_others(path, group_reads=settings.group_reads):
                found.append(
                    f"{path.name}: others can read this file; restrict it to your user (chmod 600)"
                )
    url = urlsplit((settings.base_url or "").strip())
    if url.scheme.lower() == "http" and not _is_this_machine(url.hostname or ""):
        found.append(
            f"ALMANAC_BASE_URL: http:// to {url.hostname} sends the key unencrypted, so anyone on "
            "the way can read it: use https://"
        )
    return found


def warn_short_key(settings: Settings) -> str:
    """Return a warning for a key too short to be removed from data, else an empty text."""
    found = settings.service_address()
    if found is None or len(found[1].get_secret_value()) >= LEAST_CHARS:
        return ""
    return (
        f"the key has fewer than {LEAST_CHARS} characters, so ordinary data may contain it: if "
        "the service repeats it, it is removed from messages, but not from bodies and headers"
    )


def warn_open_home(settings: Settings) -> str:
    """Return a warning for a home whose folder others can enter, else an empty text.

    It checks one folder, for frequent calls; `files_open_to_others` reads everything below it.
    """
    if not is_readable_by_others(settings.home, group_reads=settings.group_reads):
        return ""
    return "other users can read this home: `almanac doctor --fix` closes it"


def files_open_to_others(settings: Settings) -> str:
    """Return which files of home and state others can read, empty for none."""
    found = _open_files(settings)
    more = [f"{len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else []
    return " and ".join([", ".join(map(str, found[:_SHOWN])), *more])


def close_files(settings: Settings) -> int:
    """Restrict the user's own files of home and state; return how many were restricted.

    Files of other users are left as they are.
    """
    mine = [path for path in _open_files(settings) if path.lstat().st_uid == os.getuid()]
    return make_private(mine, group_reads=settings.group_reads)


def remove_secrets(settings: Settings, text: str) -> str:
    """Return an error text without the settings' secrets and this machine's folders.

    Errors of Almanac have no secret in them. Messages of libraries might, since they repeat their
    arguments.
    """
    values = [getattr(settings, name) for name in type(settings).model_fields]
    with suppress(SettingsError):  # Such a setting was never given to a library.
        values += settings.signing_secrets()
    for secret in values:
        text = Redactor(secret)(text) if isinstance(secret, SecretStr) else text
    return _FOLDERS.sub("…/", _LOGIN.sub("//…@", text))


def _open_files(settings: Settings) -> list[Path]:
    """Return the paths that others can read, of the state and of a home with a stamp."""
    from almanac.core.errors import WarehouseError
    from warehouse.home import Home

    home, roots = Home(settings.home), [settings.state]
    with suppress(WarehouseError):  # The folder is then no home of ours.
        if home.stamp() is not None:
            roots.append(home.root)
    return find_open_files(roots, group_reads=settings.group_reads)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
