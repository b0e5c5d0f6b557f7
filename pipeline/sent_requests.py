"""How many requests a home sent, by its own log (resources/request_log.py)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import msgspec

PACE_OVER: Final = timedelta(days=7)
_RATE_LIMITED: Final = 429
_DAY: Final = timedelta(days=1)


class _Line(msgspec.Struct, frozen=True):
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The attempts of the last days that the service counts, when each was, and in what time."""

    at: tuple[datetime, ...]
    over: timedelta

    @property
    def a_day(self) -> float:
        return len(self.at) / (self.over / _DAY)

    def since(self, instant: datetime) -> int:
        return sum(at > instant for at in self.at)


def sent_lately(state: Path, now: datetime) -> Sent:
    """Return what was sent in the last seven days, or since the first of them, at least a day.

    An answer 429 is not counted by the service. A line that can't be read is passed over.
    """
    since = now - PACE_OVER
    files = sorted(path for path in (state / "requests").glob("*.jsonl") if path.is_file())
    lately = [file for file in files if file.stem >= since.date().isoformat()]
    at = tuple(one.at for file in lately for one in _lines(file) if since < one.at <= now)
    over = PACE_OVER if len(lately) < len(files) else now - min(at, default=since)
    return Sent(at, max(_DAY, over))


def _lines(file: Path) -> list[_Line]:
    found: list[_Line] = []
    decoder = msgspec.json.Decoder(_Line)
    with file.open("rb") as lines:
        for line in lines:
            try:
                one = decoder.decode(line)
            except (ValueError, RecursionError):
                continue
            if one.status != _RATE_LIMITED:
                found.append(one)
    return found
