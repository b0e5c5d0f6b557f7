"""The answer of an audit.

Belongs here: verdicts, counted; what the other basis would say. Does not: how they are shown
(report, page).
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final

from almanac.audit.fields import EVENT, GROUPS, SEVERITY
from almanac.audit.stored import StoredRows
from almanac.errors import LookAhead
from almanac.paths import local_path
from almanac.results import Result

_LISTED: Final = 5
_FINDINGS_MAX: Final = 1_000


class Audit:
    """Which rows of a back-test used something that nobody knew at the decision.

    `rows`, `verdicts` and `leaks` are Results that are read when they are used. Many rows are in a
    temporary file: `.head(n)` and `.reader()`, a pyarrow RecordBatchReader, hold few in memory.

    Attributes:
        basis: `observed` is what was pulled by then; `claimed` also what the service says of the
            time before the first observation.
        rows: the findings, one row per value that is not clean: row (1 is the first of the input),
            event_id, decided_at, field, verdict, used, known_then, knowable_from (the earliest
            instant at which the value could be known), reason.
        verdicts: one row per row of the input: row, event_id, decided_at, verdict, which is the
            worst of its fields.
        columns: for each field that was judged, its column in the input.
        ignored: columns of the input that were not judged.
        naive: for each column with instants that name no zone, how many; they were read as of `tz`.
        tz: the zone of the database.
        first_pull_at, last_pull_at: when events were pulled first and last; None if never.
        other_basis: what the other basis says of the rows on which the two may differ.
    """

    def __init__(
        self,
        findings: StoredRows,
        verdicts: StoredRows,
        *,
        basis: str,
        columns: Mapping[str, str],
        ignored: list[str],
        naive: Mapping[str, int],
        tz: str,
        pulls: tuple[datetime | None, datetime | None],
        other_basis: Mapping[str, int],
        source: str,
    ) -> None:
        self.rows = findings
        self.verdicts = verdicts
        self.basis = basis
        self.columns = dict(columns)
        self.ignored = list(ignored)
        self.naive = dict(naive)
        self.tz = tz
        self.first_pull_at, self.last_pull_at = pulls
        self.other_basis = dict(other_basis)
        self.source = source

    def __len__(self) -> int:
        """The number of rows of the input."""
        return len(self.verdicts)

    @cached_property
    def counts(self) -> dict[str, int]:
        """The rows of the input by verdict, the worst first; verdicts of no row are left out."""
        counted = {verdict: count for (verdict,), count in self.verdicts.counts.items()}
        return {name: counted[name] for name in SEVERITY if name in counted}

    @cached_property
    def groups(self) -> dict[str, int]:
        """The rows of the input by group: leak, unjudged, warning, clean."""
        groups = dict.fromkeys(("leak", "unjudged", "warning", "clean"), 0)
        for verdict, count in self.counts.items():
            groups[GROUPS[verdict]] += count
        return groups

    @cached_property
    def summary(self) -> Result:
        """A Result of counts: verdict, group, field, values; the worst verdict first."""
        import pyarrow as pa

        counted = self.rows.counts
        fields = [EVENT, *(name for name in self.columns if name not in (EVENT, "decided_at"))]
        unknown = sum(count for (_, name), count in counted.items() if name == EVENT)
        for name in fields:
            found = sum(count for (_, field), count in counted.items() if field == name)
            left = len(self) - unknown - (found if name != EVENT else 0)
            counted["clean", name] = left
        rows = sorted(counted.items(), key=lambda item: (SEVERITY[item[0][0]], item[0][1]))
        return Result(
            pa.table(
                {
                    "verdict": pa.array([key[0] for key, count in rows if count], pa.string()),
                    "group": pa.array([GROUPS[key[0]] for key, n in rows if n], pa.string()),
                    "field": pa.array([key[1] for key, count in rows if count], pa.string()),
                    "values": pa.array([count for _, count in rows if count], pa.int64()),
                }
            )
        )

    @property
    def leaks(self) -> StoredRows:
        """The findings that are look-ahead, in the form of `rows`."""
        return self.of_group("leak")

    def of_group(self, group: str) -> StoredRows:
        """Return the findings of a group: `leak`, `unjudged` or `warning`."""
        return self.rows.of(name for name in SEVERITY if GROUPS[name] == group)

    @property
    def is_clean(self) -> bool:
        """Whether no look-ahead was found. False if not one of the rows could be judged.

        Rows that can't be judged are not clean; `groups` counts them.
        """
        return self.groups["leak"] == 0 and not self.is_blind

    @property
    def is_blind(self) -> bool:
        """Whether there are rows, and none could be judged."""
        return 0 < len(self) == self.groups["unjudged"]

    def assert_clean(self) -> None:
        """Raise if look-ahead was found, or if not one of the rows could be judged.

        Raises:
            LookAhead: the message has the first findings.
        """
        if self.is_clean:
            return
        from almanac.audit.report import finding_lines, headline

        shown = self.leaks if self.groups["leak"] else self.of_group("unjudged")
        lines = finding_lines(shown, _LISTED)
        raise LookAhead("\n".join([headline(self), *(f"  {line}" for line in lines)]))

    def to_json(self, findings_max: int = _FINDINGS_MAX) -> str:
        """Return counts and the first findings, leaks first, as JSON; instants are UTC."""
        from almanac.audit.report import as_json

        return as_json(self, findings_max)

    def to_html(self, path: str | Path | None = None, findings_max: int = _FINDINGS_MAX) -> str:
        """Return a page that needs nothing else, with the first findings; write it to `path`."""
        from almanac.audit.page import page_of

        page = page_of(self, findings_max)
        if path is not None:
            local_path(path, "path").write_text(page, encoding="utf-8")
        return page

    def __repr__(self) -> str:
        from almanac.audit.report import as_text

        return as_text(self, findings_max=_LISTED)

    def _repr_html_(self) -> str:
        from almanac.audit.page import fragment_of

        return fragment_of(self, findings_max=20)
