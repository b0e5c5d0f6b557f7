"""Publish: build the tables from the lake into a new file that replaces the old in one rename.

Readers keep the file they opened; they never wait, and nothing waits for them. If the published
file has the same earlier history, a copy of it is updated; else everything is built from the lake.
Checks run before readers see the new file.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import duckdb

from warehouse.clock import utc_now
from warehouse.errors import LakeDamaged, WarehouseError
from warehouse.files.storage import Storage
from warehouse.phases import Step
from warehouse.publish import lake_files
from warehouse.publish.contents import (
    DoesNotFit,
    apply_changes,
    begin_file,
    fill_tables,
    hash_contents,
    replace_local_tables,
    update_contents,
)
from warehouse.publish.lake_files import (
    STATE,
    Inputs,
    LakeDay,
    LocalState,
    find_inputs,
    find_local_state,
)
from warehouse.publish.published_file import (
    FACT,
    PUBLISHED_AT,
    StagedFile,
    note_published,
    put_in_place,
    read_contents,
    staging,
)
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import INTERNAL, TABLES
from warehouse.schema.views import MACROS, VIEWS
from warehouse.sql import USUAL_LIMITS, MakingLimits, Statements

_SQL = Statements(__package__, GROUPS)
_FILE: Final = "file:"
"""Begins the names of the facts with the hashes of the checkpoint's files."""
BLOAT_MAX: Final = 1.6
"""Size of the file relative to the last full build; above it, the next build is full."""
SMALL_BYTES: Final = 32_000_000
"""The bloat of a file up to this size does not matter."""


def check(staged: StagedFile, inputs: Inputs, *, everything: bool) -> None:
    """Compare counts with the lake's, and check the versions of all or of touched events.

    Raises:
        WarehouseError: a check failed; the published file is kept.
    """
    scope = {"everything": everything}
    if wrong := staged.run(_SQL["check_versions"], scope):
        names = ("event_id", "rows", "version", "versions", "first", "last", "current")
        rows = (zip(names, row, strict=True) for row in wrong)
        events = "; ".join(", ".join(f"{name} {value}" for name, value in row) for row in rows)
        raise _disagreement(f"events and their versions disagree: {events}")
    if wrong := staged.run(_SQL["check_absences"]):
        events = ", ".join(str(event_id) for (event_id,) in wrong)
        raise _disagreement(f"the logged absences of {events} do not end with its `missing_since`")
    if inputs.state:
        ((events, of_lake, versions, versions_of_lake),) = staged.run(
            _SQL["check_counts"], inputs.state
        )
        if (events, versions) != (of_lake, versions_of_lake):
            raise WarehouseError(
                f"{events} events and {versions} versions would be published, but the lake has "
                f"{of_lake} and {versions_of_lake}. The old warehouse is kept; run `almanac "
                "replay`."
            )


def _disagreement(message: str) -> WarehouseError:
    return WarehouseError(
        f"{message}. Nothing was published; the old warehouse is kept. Run `almanac replay`; if it "
        "recurs, it is a bug in Almanac."
    )


@dataclass(slots=True)
class PublishReport:
    """The result of a publication. `why_full` is the reason of a full build; sizes are in bytes."""

    mode: Literal["full", "delta", "none"]
    why_full: str | None = None
    rows: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0
    months: int = 0
    """Event months rewritten in the lake."""
    contents: dict[str, str] = field(default_factory=dict)
    """The content of each table as a short text, which differs if the table differs."""


def publish(
    lake: Storage,
    warehouse_path: Path,
    *,
    chain: Sequence[LakeDay],
    state_folder: Path | None,
    full: bool = False,
    step: Step = lambda _: None,
    now: Callable[[], datetime] = utc_now,
    limits: MakingLimits = USUAL_LIMITS,
) -> PublishReport:
    """Update the warehouse to the lake. Call only under the merge lock.

    `chain` has all days of the change log, oldest first. A second call does nothing. `now` gives
    the time that is stored in the file: the machine's, since no service takes part.

    Raises:
        WarehouseError: the new publication or a file of the lake is wrong; the old warehouse is
            kept.
    """
    began = monotonic()
    if warehouse_path.is_dir():
        raise WarehouseError(
            f"{warehouse_path} is a folder, and must be the published file. Nothing was "
            "published; move it away, or run `almanac replay`."
        )
    publication = _Publication(
        lake,
        warehouse_path,
        tuple(chain),
        find_local_state(state_folder),
        step,
        None if state_folder is None else Storage(state_folder),
        now,
        limits,
    )
    why_full = "it was requested" if full else None
    if why_full is None:
        try:
            report = publication.bring_up_to_date()
        except LakeDamaged:
            raise  # A full build would read the same files.
        except (DoesNotFit, WarehouseError, duckdb.Error, LookupError) as reason:
            why_full = str(reason)
    if why_full is not None:
        report = publication.build_full(why_full)
    report.bytes = warehouse_path.stat().st_size
    report.seconds = monotonic() - began
    return report


@dataclass(slots=True)
class _Publication:
    """The input and the target of one publication."""

    lake: Storage
    warehouse: Path
    chain: tuple[LakeDay, ...]
    local: LocalState
    step: Step
    notes: Storage | None
    """The state folder, which has the hash of the published file."""
    now: Callable[[], datetime]
    limits: MakingLimits

    def bring_up_to_date(self) -> PublishReport:
        """Apply the differences to a copy of the published file.

        Raises:
            DoesNotFit: the file has another history or form, or too much differs.
        """
        if not self.warehouse.exists():
            raise DoesNotFit("there is no warehouse yet")
        with staging(self.warehouse) as path:
            shutil.copyfile(self.warehouse, path)
            staged = StagedFile(path, self.limits)
            try:
                return self._apply(staged)
            finally:
                staged.abandon()

    def build_full(self, why: str) -> PublishReport:
        """Build everything from the lake."""
        with staging(self.warehouse) as path:
            try:
                staged = begin_file(path, self.limits)
                try:
                    return self._fill(staged, why)
                finally:
                    staged.abandon()
            except duckdb.Error as error:
                raise WarehouseError(
                    f"the lake can't be published: {error}. The old warehouse is kept. If a file "
                    "of the lake is damaged, `almanac replay` rebuilds it."
                ) from error

    def _fill(self, staged: StagedFile, why: str) -> PublishReport:
        inputs = find_inputs(self.lake, self.chain, self.chain)
        fill_tables(staged, inputs, self.local)
        check(staged, inputs, everything=True)
        report = PublishReport("full", why_full=why, contents=hash_contents(staged))
        facts = {"signature": hash_form(), "local": self.local.fingerprint}
        return self._put(staged, report, None, {**facts, **_made_from(inputs)})

    def _apply(self, staged: StagedFile) -> PublishReport:
        try:
            facts = _facts(staged)
        except duckdb.CatalogException:  # It has none, or in another schema.
            raise DoesNotFit("another version of Almanac or DuckDB made it") from None
        self._refuse_misfit(facts)
        first_day = _first_changed(staged.run(_SQL["list_published_chain"]), self.chain)
        same = first_day is None and facts["local"] == self.local.fingerprint
        if same and not lake_files.unsettled_months(self.lake):
            return PublishReport("none", rows=_rows(staged), contents=read_contents(facts))
        months: set[str] = set()
        contents = read_contents(facts)
        new_facts = dict[str, str]()
        if first_day is not None:
            days = [day_file for day_file in self.chain if day_file.day >= first_day]
            inputs = find_inputs(self.lake, self.chain, days)
            same_state = frozenset(
                name for name, sha256 in inputs.hashes.items() if facts.get(_FILE + name) == sha256
            )
            differed = apply_changes(staged, inputs, first_day, same_state)
            check(staged, inputs, everything=False)
            contents = update_contents(staged, contents, differed)
            months = lake_files.changed_months(staged)
            new_facts |= _made_from(inputs)
        if facts["local"] != self.local.fingerprint:
            replace_local_tables(staged, self.local)
            new_facts["local"] = self.local.fingerprint
        return self._put(staged, PublishReport("delta", contents=contents), months, new_facts)

    def _refuse_misfit(self, facts: dict[str, str]) -> None:
        if facts["signature"] != hash_form():
            raise DoesNotFit("another version of Almanac or DuckDB made it")
        if not self.chain:
            raise DoesNotFit("the lake is empty")
        size = self.warehouse.stat().st_size
        if size > max(SMALL_BYTES, BLOAT_MAX * int(facts["full_bytes"])):
            raise DoesNotFit(f"it has grown to {size} bytes from {facts['full_bytes']}")

    def _put(
        self,
        staged: StagedFile,
        report: PublishReport,
        months: set[str] | None,
        facts: dict[str, str],
    ) -> PublishReport:
        """Note facts of the file, write the lake's events, then rename the file."""
        self.step("publish:built")
        report.rows = _rows(staged)
        contents = {FACT + name: content for name, content in report.contents.items()}
        _note(staged, {**facts, **contents})
        staged.commit()
        report.months = lake_files.write_events(staged, self.lake, months)
        self.step("publish:lake_events_written")
        last = {PUBLISHED_AT: self.now().isoformat()}
        if report.mode == "full":
            staged.checkpoint()
            last["full_bytes"] = str(staged.path.stat().st_size)
        _note(staged, last)
        staged.close()
        self.step("publish:finished")
        note_published(self.notes, staged.path, self.warehouse)
        put_in_place(staged.path, self.warehouse)
        self.step("publish:renamed")
        lake_files.settle(self.lake)
        return report


def _first_changed(published: Sequence[tuple[date, str]], chain: Sequence[LakeDay]) -> date | None:
    """Return the first day on which two histories differ, None if they are the same."""
    current = [(day_file.day, day_file.sha256) for day_file in chain]
    for old, new in zip_longest(published, current):
        if old != new:
            return min(pair[0] for pair in (old, new) if pair is not None)
    return None


def _facts(staged: StagedFile) -> dict[str, str]:
    return dict(staged.run(_SQL["list_facts"]))


def _note(staged: StagedFile, facts: dict[str, str]) -> None:
    staged.run(_SQL["forget_facts"], {"names": list(facts)})
    staged.run(_SQL["note_facts"], {"names": list(facts), "values": list(facts.values())})


def _made_from(inputs: Inputs) -> dict[str, str]:
    """Return the facts of the state's files; one whose hash is not known matches no later one."""
    return {_FILE + name: inputs.hashes.get(name, "") for name in STATE}


def _rows(staged: StagedFile) -> dict[str, int]:
    return {str(name): int(rows) for name, rows in staged.run(ddl.counts(TABLES))}


@cache
def hash_form() -> str:
    """Return a hash of the file's form: the declarations and the SQL that fills it.

    Contents are sums of DuckDB's `hash`, which another version may compute otherwise.
    """
    form = (duckdb.__version__, TABLES, INTERNAL, VIEWS, MACROS)
    digest = hashlib.sha256(repr(form).encode())
    for text in (*ddl.definitions(), *_SQL.texts.values()):
        digest.update(text.encode())
    return digest.hexdigest()
