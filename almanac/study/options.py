"""The options of an event study that most studies leave as they are."""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import Duration
from almanac.events import check_choice

Model = Literal["market", "mean"]
Kind = Literal["log", "simple"]
Dates = Literal["exact", "instant"]
Steps = Literal["exclude", "keep"]
Stamp = Literal["start", "end"]
Bars = Literal["grid", "frame"]
Bound = int | Duration
"""A number of bars, or a time."""
_CHOICES: Final[dict[str, Any]] = {
    **{"model": Model, "returns": Kind, "dates": Dates},
    **{"redenominations": Steps, "stamp": Stamp, "bars": Bars},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The model, the bars and the draws of `Database.event_study`.

    Attributes:
        model: `market` (least squares on the market) or `mean` (mean-adjusted); None is `market`,
            or `mean` if the prices have one coin and no market is given.
        estimation: the bars, or the time, on which the model is fitted; None is 120 bars, or four
            windows if these are longer.
        gap: the bars, or the time, between estimation and window.
        min_estimation: the least share of the estimation window that has returns.
        returns: `log` or `simple`.
        dates: `exact` are days and timestamps, `instant` leaves out dates that are days.
        redenominations: a step of a price by a power of ten, such as 1:1000, does not count as a
            return (`exclude`: rows with a step in the window are left out), or counts (`keep`).
        bar: the length of a bar; None is the most frequent distance in the prices.
        stamp: whether `ts` is the start of a bar, as exchanges give it, or its end.
        bars: `grid` has every bar between the first and the last; `frame` those that the prices
            have, for a market that closes.
        max_gap: the most missing prices in a row over which a price is carried in a window.
        rounds, seed: random draws of the calendar test; the same seed gives the same result.

    Raises:
        InvalidArgument: a value is wrong.
    """

    model: Model | None = None
    estimation: Bound | None = None
    gap: Bound = 10
    min_estimation: float = 0.7
    returns: Kind = "log"
    dates: Dates = "exact"
    redenominations: Steps = "exclude"
    bar: Duration | None = None
    stamp: Stamp = "start"
    bars: Bars = "grid"
    max_gap: int = 3
    rounds: int = 1_999
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if name != "model" or self.model is not None:
                check_choice(getattr(self, name), name, get_args(choices))
        if self.rounds < 99:
            raise InvalidArgument(f"rounds={self.rounds!r}; expected 99 or more")
        if self.seed < 0:
            raise InvalidArgument(f"seed={self.seed!r}; expected a whole number, 0 or more")
        if not 0 < self.min_estimation <= 1:
            raise InvalidArgument(
                f"min_estimation={self.min_estimation!r}; expected a share, 0 to 1"
            )
        if self.max_gap < 0:
            raise InvalidArgument(f"max_gap={self.max_gap!r}; expected bars, 0 or more")
