"""What was known at the instants of the caller's rows.

Belongs here: `attach_known` and `features`, from the caller's frame, bars and names of coins to
codes and instants. Does not: the answer (next_events).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from almanac import frames
from almanac.coins import Coin
from almanac.errors import InvalidArgument
from almanac.events import Names, category_names, impact_values, one_of
from almanac.instants import Duration, duration
from almanac.joins.next_events import ORIGIN, US, Rows, Selection, next_events
from almanac.joins.spans import NONE
from almanac.pairs import Coins, resolve_each_pair, resolve_pairs
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

AsOf = Literal["bar_close", "bar_open"]
Symbols = str | Iterable[str] | Mapping[str, str | Coin]
Unknown = Literal["raise", "ignore"]
_SQL = NamedStatements("almanac.joins")


def attach_known(
    reader: Reader,
    frame: Any,
    *,
    ts: str | None,
    coin: str,
    horizon: Duration,
    prefix: str,
    categories: Names | None,
    min_impact: float | None,
    unknown: Unknown,
    coins: Coins | None = None,
) -> Any:
    is_strict = one_of(unknown, "unknown", ("raise", "ignore")) == "raise"
    with reader.pinned():
        selection = selected(reader, horizon, categories, min_impact)
        moments = frames.moments_of(frames.column_of(frame, ts, "ts"), ts or "index", reader.tz)
        _refuse_future(reader, moments, "the frame")
        texts = frames.texts_of(frames.column_of(frame, coin, "coin"), coin)
        slugs, codes = _coins_of(reader, texts, coins, is_strict=is_strict)
        known = next_events(reader, Rows(codes, moments, slugs), selection)
    return frames.with_columns(frame, known, prefix)


def features(
    reader: Reader,
    index: Any,
    *,
    bar: Duration,
    symbols: Symbols,
    as_of: AsOf,
    horizon: Duration,
    categories: Names | None,
    min_impact: float | None,
) -> "pd.DataFrame":
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    length = duration(bar, "bar")
    if not length:
        raise InvalidArgument(f"bar={bar!r}: a bar takes some time, such as '1h' or '1d'")
    is_close = one_of(as_of, "as_of", ("bar_close", "bar_open")) == "bar_close"
    names = named_coins(symbols)
    opens = pd.Index(index)
    with reader.pinned():
        selection = selected(reader, horizon, categories, min_impact)
        opened = frames.moments_of(opens.to_series(index=range(len(opens))), "index", reader.tz)
        _refuse_future(reader, opened, "index")
        coins = [coin.slug for coin in resolve_each_pair(reader, names.values())]
        slugs = sorted(set(coins))
        known_us = opened.microseconds + (length // US if is_close else 0)
        # What will be known at the close of the running bar is not known yet.
        is_over = opened.is_known & (known_us <= (reader.now() - ORIGIN) // US)
        each = len(coins)
        codes = np.tile(np.array([slugs.index(slug) for slug in coins], np.int64), len(opens))
        moments = frames.Moments(np.repeat(known_us, each), np.repeat(is_over, each))
        known = next_events(reader, Rows(codes, moments, slugs), selection)
    known_at = pa.array(moments.microseconds, mask=np.repeat(~opened.is_known, each))
    known_at = known_at.cast(pa.timestamp("us", str(reader.tz)))
    found = frames.pandas_of(known.append_column("known_at", known_at))
    found.index = pd.MultiIndex.from_product([opens, list(names)], names=["ts", "symbol"])
    return found


def selected(
    reader: Reader, horizon: Duration, categories: Names | None, min_impact: float | None
) -> Selection:
    """Return which events count, from arguments as the caller gives them.

    Raises:
        InvalidArgument: a score is wanted, and no pull has shown any.
    """
    filters = {"categories": category_names(reader, categories), **impact_values(min_impact)}
    if min_impact is not None:
        (shown,) = reader.query(_SQL["impact_is_known"]).to_pylist()
        if shown["versions"] and not shown["is_known"]:
            raise InvalidArgument(
                f"min_impact={min_impact!r}: no event has a score or a band; the plan does not "
                "show them. Use min_impact=None, and choose by categories."
            )
    return Selection(duration(horizon, "horizon"), filters)


def named_coins(symbols: Symbols) -> dict[str, str | Coin]:
    """Return coins by the names that the caller's data has for them.

    Raises:
        InvalidArgument: a name is given twice, or there is none.
    """
    if isinstance(symbols, Mapping):
        return dict(symbols)
    listed = [symbols] if isinstance(symbols, str) else list(symbols)
    if len(set(listed)) < len(listed):
        raise InvalidArgument(f"symbols={listed!r}: a symbol is given twice")
    return {name: name for name in listed}


def _refuse_future(reader: Reader, moments: frames.Moments, what: str) -> None:
    import numpy as np

    now = reader.now()
    is_late = moments.is_known & (moments.microseconds > (now - ORIGIN) // US)
    if is_late.any():
        row = int(np.argmax(is_late))
        at = np.datetime64(int(moments.microseconds[row]), "us")
        raise InvalidArgument(
            f"row {row} of {what} is at {at}Z, still to come: the time is {now.isoformat()}. "
            f"Nobody knows yet what will be known then. Rows like this: {int(is_late.sum())}. "
            "Leave them out; an instant that names no zone is of the zone of the database."
        )


def _coins_of(
    reader: Reader, texts: "pa.DictionaryArray", named: Coins | None, *, is_strict: bool
) -> tuple[list[str], "npt.NDArray[np.int64]"]:
    """Return the slugs, and for each row the place of its slug; `NONE` for no coin."""
    import numpy as np

    wanted: list[str] = texts.dictionary.to_pylist()
    coins = resolve_pairs(reader, wanted, named)
    if is_strict:
        resolve_each_pair(reader, [text for text in wanted if text not in coins])  # Raises.
    slugs = sorted({coin.slug for coin in coins.values()})
    place = {slug: number for number, slug in enumerate(slugs)}
    codes = [place[coins[text].slug] if text in coins else NONE for text in wanted]
    indices = texts.indices.fill_null(len(wanted)).to_numpy(zero_copy_only=False)
    return slugs, np.array([*codes, NONE], np.int64)[indices]
