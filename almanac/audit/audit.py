"""The audit: reading the caller's rows, judging them under both bases.

Belongs here: the order of the steps. Does not: the steps (signals, places, judge).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from almanac.audit.fields import GROUPS
from almanac.audit.judge import Judged, judge
from almanac.audit.places import Pulls, pulls_of
from almanac.audit.result import Audit
from almanac.audit.signals import Signals, read_signals
from almanac.audit.stored import HELD_BYTES, RowStore
from almanac.audit.universe import DecisionPairs, compare_universe, universe_rule
from almanac.errors import InvalidArgument
from almanac.reader import Reader
from almanac.streams import SLICE_ROWS, RowProgress

_BASES = ("observed", "claimed")


def audit(
    reader: Reader,
    source: Any,
    *,
    decided_at: str | None,
    fields: Mapping[str, str | None] | None,
    basis: str,
    universe: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None,
    rows_max: int = SLICE_ROWS,
    held_bytes: int = HELD_BYTES,
) -> Audit:
    """Return the verdicts on rows, which are judged `rows_max` at a time.

    Findings above `held_bytes` are kept in a temporary file.

    Raises:
        InvalidArgument: the rows can't be read, or lack a column.
    """
    if basis not in _BASES:
        raise InvalidArgument(f"basis={basis!r}; expected {', '.join(_BASES)}")
    signals = read_signals(source, decided_at=decided_at, fields=fields, rows_max=rows_max)
    shown = RowProgress(progress, signals.rows)
    shown.step("reading the rows")
    naive: Counter[str] = Counter()
    other: Counter[str] = Counter()
    used: Counter[str] = Counter()
    with (
        RowStore(["verdict", "field"], held_bytes) as findings,
        RowStore(["verdict"], held_bytes) as verdicts,
        reader.pinned(),
    ):
        pulls = pulls_of(reader)
        rule = None if universe is None else universe_rule(reader, universe)
        pairs = DecisionPairs()
        for batch in signals.batches:
            judged = judge(reader, batch, pulls, claimed=basis == "claimed", progress=shown.step)
            findings.append(judged.findings)
            verdicts.append(judged.verdicts)
            naive.update(judged.naive)
            used.update(judged.used)
            if rule is not None:
                pairs.add(judged.verdicts)
            other.update(_other_basis(reader, batch, pulls, judged, basis, shown.step))
            shown.add(batch.table.num_rows)
        differences = None
        if rule is not None:
            shown.step("comparing with the universe")
            is_claimed = basis == "claimed"
            differences = compare_universe(reader, rule, pairs, pulls.now, claimed=is_claimed)
        return Audit(
            findings.finish(),
            verdicts.finish(),
            basis=basis,
            columns=signals.columns,
            ignored=signals.ignored,
            naive={signals.columns[name]: count for name, count in naive.items()},
            tz=str(reader.tz),
            pulls=(pulls.first, pulls.last),
            other_basis=other,
            used=used,
            universe=differences,
            source=Path(source).name if isinstance(source, (str, Path)) else "signals",
        )


def _other_basis(
    reader: Reader,
    signals: Signals,
    pulls: Pulls,
    judged: Judged,
    basis: str,
    progress: Callable[[str], None],
) -> dict[str, int]:
    """Return what the other basis says of the rows on which the two may differ, by group.

    They differ on decisions before the first observation of an event alone.
    """
    import pyarrow.compute as pc

    counts = dict.fromkeys(("rows", "leak", "unjudged", "warning", "clean"), 0)
    differing = judged.before_first
    if len(differing) == 0:
        return counts
    progress("judging by the other basis")
    part = Signals(signals.table.take(differing), signals.columns, {})
    other = judge(reader, part, pulls, claimed=basis != "claimed", progress=lambda step: None)
    counts["rows"] = len(differing)
    for row in pc.value_counts(other.verdicts["verdict"]).to_pylist():
        counts[GROUPS[row["values"]]] += row["counts"]
    return counts
