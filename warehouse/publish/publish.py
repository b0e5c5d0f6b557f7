"""Publish: build the tables from the lake into a new file that replaces the old in one rename.

Readers keep the file they opened; they never wait, and nothing waits for them. If the published
file has the same earlier history, the spare file or a copy is updated; else everything is built
from the lake. Checks run before readers see the new file.

The spare file is one publication behind, so a publication applies two deltas to it. The events by
month in the lake belong to the published file. A month may have changed in the publication before
and not since the spare file, if a refold took a change back, so the published file lists the months
that differ from the file before.
"""

import hashlib
import logging
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import duckdb

from almanac.reading.attached_file import attach_published
from almanac.reading.connections import open_memory
from warehouse.clock import utc_now
from warehouse.errors import LakeDamaged, WarehouseError
from warehouse.files.storage import Storage
from warehouse.making_limits import USUAL_LIMITS, MakingLimits
from warehouse.phases import Step
from warehouse.publish import lake_files
from warehouse.publish.block_hashes import BaseHashes, PublishedHashes
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
    MONTHS,
    PUBLICATION,
    PUBLISHED_AT,
    REPLACED,
    StagedFile,
    open_making,
    put_in_place,
    read_contents,
    remove_unfinished,
    staging,
)
from warehouse.publish.spare_file import drop_spare, take_spare
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.schema.tables import INTERNAL, TABLES
from warehouse.schema.views import MACROS, VIEWS
from warehouse.sql import Statements, parse

_SQL = Statements(__package__, GROUPS)
_log = logging.getLogger(__name__)
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
        None if state_folder is None else PublishedHashes(Storage(state_folder)),
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
    hashes: PublishedHashes | None
    now: Callable[[], datetime]
    limits: MakingLimits

    def bring_up_to_date(self) -> PublishReport:
        """Apply the differences to the spare file, or to a copy of the published file.

        Raises:
            DoesNotFit: the file has another history or form, or too much differs.
        """
        if not self.warehouse.exists():
            raise DoesNotFit("there is no warehouse yet")
        with staging(self.warehouse) as path:
            with closing(open_making(path, self.limits, warehouse=self.warehouse)) as connection:
                published = self._read_published(connection, path)
                if isinstance(published, PublishReport):
                    return published
                is_spare = not path.exists() and take_spare(self.warehouse, path)
                if not path.exists():
                    shutil.copyfile(self.warehouse, path)
                try:
                    return self._apply(path, connection, published, is_spare=is_spare)
                except LakeDamaged:
                    raise
                except (DoesNotFit, WarehouseError, duckdb.Error, LookupError) as reason:
                    if not is_spare:
                        raise
                    _log.info("The spare file is removed, and a copy is made: %s", reason)
            remove_unfinished(self.warehouse.parent)
            shutil.copyfile(self.warehouse, path)
            with closing(open_making(path, self.limits, warehouse=self.warehouse)) as connection:
                return self._apply(path, connection, published, is_spare=False)

    def _read_published(
        self, connection: duckdb.DuckDBPyConnection, staged: Path
    ) -> dict[str, str] | PublishReport:
        """Return the facts of the published file, or the report if it is up to date.

        A published file that another program has locked is copied to the staged path.
        """
        try:
            attach_published(connection, self.warehouse, "published")
        except duckdb.IOException:
            shutil.copyfile(self.warehouse, staged)
            attach_published(connection, staged, "published")
        connection.execute(ddl.use("published"))
        try:
            facts = _facts(connection)
            self._refuse_misfit(facts, self.warehouse)
            published = connection.execute(_SQL["list_published_chain"]).fetchall()
            if (
                _first_changed(published, self.chain) is None
                and facts["local"] == self.local.fingerprint
                and not lake_files.unsettled_months(self.lake)
            ):
                return PublishReport("none", rows=_rows(connection), contents=read_contents(facts))
        finally:
            for text in ("USE memory", "DETACH published"):
                connection.execute(text)
        return facts

    def _find_publication(self) -> str:
        """Return the id of the published file, empty if it is not known."""
        with suppress(duckdb.Error, DoesNotFit), closing(open_memory()) as connection:
            if self.warehouse.exists():
                attach_published(connection, self.warehouse, "published")
                connection.execute(ddl.use("published"))
                return str(_facts(connection).get(PUBLICATION, ""))
        return ""

    def build_full(self, why: str) -> PublishReport:
        """Build everything from the lake."""
        with staging(self.warehouse) as path:
            try:
                with closing(begin_file(path, self.limits)) as staged:
                    return self._fill(staged, why)
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

    def _apply(
        self,
        path: Path,
        connection: duckdb.DuckDBPyConnection,
        published: Mapping[str, str],
        *,
        is_spare: bool,
    ) -> PublishReport:
        """Apply the differences to the spare file, or to a copy of the file with these facts."""
        publication = published[REPLACED if is_spare else PUBLICATION]
        base = self._read_base(path, publication)
        staged = StagedFile(path, connection)
        facts = _facts(connection)
        self._refuse_misfit(facts, path)
        if facts[PUBLICATION] != publication:
            raise DoesNotFit("it is not the file that the published one replaced")
        # The lake has the months of the published file.
        months = {*published[MONTHS].split()} if is_spare else set[str]()
        contents = read_contents(facts)
        new_facts = dict[str, str]()
        first_day = _first_changed(staged.run(_SQL["list_published_chain"]), self.chain)
        if first_day is not None:
            days = [day_file for day_file in self.chain if day_file.day >= first_day]
            inputs = find_inputs(self.lake, self.chain, days)
            same_state = frozenset(
                name for name, sha256 in inputs.hashes.items() if facts.get(_FILE + name) == sha256
            )
            differed = apply_changes(staged, inputs, first_day, same_state)
            check(staged, inputs, everything=False)
            contents = update_contents(staged, contents, differed)
            months |= lake_files.changed_months(staged)
            new_facts |= _made_from(inputs)
        if facts["local"] != self.local.fingerprint:
            replace_local_tables(staged, self.local)
            new_facts["local"] = self.local.fingerprint
        new_facts[REPLACED] = published[PUBLICATION]
        return self._put(staged, PublishReport("delta", contents=contents), months, new_facts, base)

    def _read_base(self, path: Path, publication: str) -> BaseHashes | None:
        if self.hashes is None:
            return None
        try:
            return self.hashes.read_base(path, publication)
        except ValueError as error:
            raise DoesNotFit(str(error)) from error

    def _refuse_misfit(self, facts: dict[str, str], path: Path) -> None:
        if facts["signature"] != hash_form():
            raise DoesNotFit("another version of Almanac or DuckDB made it")
        if not self.chain:
            raise DoesNotFit("the lake is empty")
        size = path.stat().st_size
        if size > max(SMALL_BYTES, BLOAT_MAX * int(facts["full_bytes"])):
            raise DoesNotFit(f"it has grown to {size} bytes from {facts['full_bytes']}")

    def _put(
        self,
        staged: StagedFile,
        report: PublishReport,
        months: set[str] | None,
        facts: dict[str, str],
        base: BaseHashes | None = None,
    ) -> PublishReport:
        """Note facts of the file, write the lake's events, then rename the file."""
        self.step("publish:built")
        report.rows = _rows(staged.connection)
        contents = {FACT + name: content for name, content in report.contents.items()}
        publication = uuid.uuid4().hex
        _note(staged, {REPLACED: "", **facts, **contents, PUBLICATION: publication})
        staged.commit()
        rewritten = lake_files.write_events(staged, self.lake, months)
        report.months = len(rewritten.months)
        self.step("publish:lake_events_written")
        last = {PUBLISHED_AT: self.now().isoformat(), MONTHS: " ".join(sorted(rewritten.differing))}
        if report.mode == "full":
            staged.checkpoint()
            last["full_bytes"] = str(staged.path.stat().st_size)
        _note(staged, last)
        staged.finish()
        self.step("publish:finished")
        if report.mode == "full":
            drop_spare(self.warehouse)  # The hashes of this file are forgotten.
        if self.hashes is not None:
            replaced = facts.get(REPLACED) or self._find_publication()
            self.hashes.note(staged.path, publication, replaced, base)
        put_in_place(staged.path, self.warehouse, keeping=report.mode == "delta")
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


def _facts(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the facts of the file in use.

    Raises:
        DoesNotFit: it has none, or in another schema.
    """
    try:
        return dict(connection.execute(_SQL["list_facts"]).fetchall())
    except duckdb.CatalogException:
        raise DoesNotFit("another version of Almanac or DuckDB made it") from None


def _note(staged: StagedFile, facts: dict[str, str]) -> None:
    staged.run(_SQL["forget_facts"], {"names": list(facts)})
    staged.run(_SQL["note_facts"], {"names": list(facts), "values": list(facts.values())})


def _made_from(inputs: Inputs) -> dict[str, str]:
    """Return the facts of the state's files; one whose hash is not known matches no later one."""
    return {_FILE + name: inputs.hashes.get(name, "") for name in STATE}


def _rows(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    counts = connection.execute(parse(ddl.counts(TABLES))).fetchall()
    return {str(name): int(rows) for name, rows in counts}


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
