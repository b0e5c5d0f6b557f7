"""The fold: each observation in turn changes the state and adds versions to the log.

The rules are in docs/history.md. A fold writes the tables of the next warehouse file; its result is
a pure function of the observations and their order.

Watched spans distinguish a new event from an event that merely became visible. If an event was
created after a complete pull of its date, its first sighting is `created`; any other first sighting
is `revealed`. Bounds are inclusive, aware UTC.
"""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from almanac.core.connections import parse
from almanac.core.statements import Statements
from catalog.contract.plans import INSTANT_STEP
from warehouse.history.observations import (
    Observation,
    Outcome,
    VisibleScope,
    classify_failures,
    find_visible_scope,
    proves_withdrawal,
)
from warehouse.history.warehouse_file import SEPARATOR_FACT, NextFile
from warehouse.landing.batches import ENOUGH_ROWS_SHARE, Manifest
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_reader import KnownLists
from warehouse.normalise.normalise import NormalisedBatch, normalise
from warehouse.normalise.staging import empty_events
from warehouse.schema.columns import BIT, GROUPS, find_plan, mask

END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)
_SQL = Statements(__package__, GROUPS)
_SPANS: Final = "spans"
"""The key under which the file stores the watched spans."""
_IMPACT_BITS: Final = {f"{name}_bit": BIT[name] for name in ("impact", "impact_band")}
_COMPARED: Final = mask(*(column["name"] for column in GROUPS["compared"]))


class WatchedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of event dates, watched since a time, with a filter or without."""

    lower: datetime
    upper: datetime
    since: datetime
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None

    @property
    def filter(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        return self.coins, self.categories


class CancellationSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time for which all cancellations were pulled, and the time of the last pull."""

    since: datetime
    until: datetime
    observed_at: datetime


def add_cancellations(
    seen: tuple[CancellationSpan, ...], new: CancellationSpan
) -> tuple[CancellationSpan, ...]:
    """Add the latest pull: it extends the spans that it touches, or begins one after a gap.

    A span before a gap is kept: it still proves that cancellations were pulled at that time.
    """
    while seen and new.since <= seen[-1].until:
        new = msgspec.structs.replace(new, since=min(new.since, seen[-1].since))
        seen = seen[:-1]
    return (*seen, new)


class WatchedSpans:
    """Disjoint spans for each filter, each with the time of its earliest complete pull."""

    def __init__(self, spans: tuple[WatchedSpan, ...] = ()) -> None:
        self.spans = spans

    def add(self, new: WatchedSpan) -> bool:
        """Record a complete pull; return whether the spans changed."""
        same = [span for span in self.spans if span.filter == new.filter]
        if any(
            span.lower <= new.lower and new.upper <= span.upper and span.since <= new.since
            for span in same
        ):
            return False
        others = [span for span in self.spans if span.filter != new.filter]
        self.spans = (*others, *_merged([*same, new]))
        return True


def _merged(spans: list[WatchedSpan]) -> list[WatchedSpan]:
    """Cut overlapping spans at each other's bounds; each piece keeps the time of its earliest
    pull."""
    edges = sorted({span.lower for span in spans} | {_after(span.upper) for span in spans})
    pieces: list[WatchedSpan] = []
    for lower, end in pairwise(edges):
        upper = END_OF_TIME if end >= END_OF_TIME else end - INSTANT_STEP
        over = [span for span in spans if span.lower <= lower and upper <= span.upper]
        if not over:
            continue
        since = min(span.since for span in over)
        last = pieces[-1] if pieces else None
        if last is not None and last.since == since and _after(last.upper) == lower:
            pieces[-1] = msgspec.structs.replace(last, upper=upper)
        else:
            pieces.append(msgspec.structs.replace(spans[0], lower=lower, upper=upper, since=since))
    return pieces


def _after(upper: datetime) -> datetime:
    return END_OF_TIME if upper >= END_OF_TIME else upper + INSTANT_STEP


class SavedSpans(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the state that is not in a table; a fact of the file has it as JSON."""

    watched: tuple[WatchedSpan, ...] = ()
    cancellations_seen: tuple[CancellationSpan, ...] = ()


class Fold:
    """The state of a file, which observations change. The caller holds a transaction."""

    def __init__(self, file: NextFile, list_separator: str | None = None) -> None:
        """`list_separator` is the separator of lists in exports. If it is None, it is taken from
        the first export that shows it."""
        self.file = file
        self.connection = file.connection
        self._list_separator = list_separator
        saved = msgspec.json.decode(file.facts.get(_SPANS, "{}"), type=SavedSpans)
        self.watched = WatchedSpans(saved.watched)
        self.cancellations_seen = saved.cancellations_seen
        self._saved = saved
        self.separator = file.facts.get(SEPARATOR_FACT)
        """The separator of lists, as the first export with evidence showed it."""

    def save(self) -> None:
        """Write the part of the state that is not in a table to the file."""
        spans = SavedSpans(
            watched=tuple(self.watched.spans), cancellations_seen=self.cancellations_seen
        )
        if spans != self._saved:
            self.file.note_fact(_SPANS, msgspec.json.encode(spans).decode())
            self._saved = spans

    def read(self, manifest: Manifest, landing: Landing) -> NormalisedBatch:
        """Read a batch into temporary tables.

        It must not run in a transaction: an error of DuckDB's reader, after which the other reader
        takes over, would abort the transaction.

        Raises:
            BatchFailed: continue without the batch.
            WarehouseError: an error in Almanac, not in the batch.
        """
        with classify_failures(manifest):
            return normalise(
                self.connection,
                landing,
                manifest,
                known=self._known_lists() if manifest.feed == "export" else None,
                finds_unchanged=True,
            )

    def fold(self, observation: Observation, read: NormalisedBatch, *, released: bool) -> Outcome:
        """Fold one observation, whose batch was read; return its outcome.

        Raises:
            BatchFailed: the state is half changed; roll back, and continue without the batch.
            WarehouseError: an error in Almanac, not in the batch; the state is half changed.
        """
        with classify_failures(observation.manifest):
            return self._fold(observation, read, released=released)

    def _fold(self, observation: Observation, read: NormalisedBatch, *, released: bool) -> Outcome:
        manifest = observation.manifest
        outcome = Outcome(
            manifest,
            read.arrived,
            read.good,
            read.rejected,
            read.duplicates,
            read.ignored,
            read.notes,
            released=released,
        )
        if read.quarantine is not None and not released:
            return outcome.quarantine(read.quarantine)
        if self.separator is None and read.learnt is not None:
            self.separator = read.learnt
            self.file.note_fact(SEPARATOR_FACT, read.learnt)
        if manifest.feed == "coins":
            self._fold_coins(manifest, outcome)
        elif manifest.feed == "categories":
            self._run("merge_categories", observed_at=manifest.observed_at)
            self.write_watched()
        elif manifest.feed == "deliveries":
            self._fold_deliveries(observation, outcome)
        else:
            if read.duplicates:
                self._run("pick_newest_rows")
            self._run("take_picked_rows" if read.duplicates else "take_all_rows")
            self._fold_rows(manifest, outcome, released=released)
        # The versions have the rows now; those of a large batch would fill the remaining memory.
        empty_events(self.connection)
        return outcome

    def _fold_deliveries(self, observation: Observation, outcome: Outcome) -> None:
        self._run("number_deliveries", positions=list(observation.positions or ()))
        for place in range(1, self._rows("count_places")[0][0] + 1):
            self._run("pick_deliveries", place=place)
            self._run("take_picked_rows")
            self._fold_incoming(observation.manifest, outcome)

    def _fold_rows(self, manifest: Manifest, outcome: Outcome, *, released: bool) -> None:
        """Fold a batch of one row per event."""
        visible = find_visible_scope(manifest) if manifest.feed in ("events", "export") else None
        self._fold_incoming(manifest, outcome)
        if not manifest.complete:
            return  # A partial batch does not prove that an event is absent.
        if manifest.feed == "event":
            self._fold_not_found(manifest, outcome)
        elif manifest.feed == "cancellations":
            self._note_cancellations(manifest)
        elif visible is not None:
            is_whole = True
            if released or not self._flag_nameless(outcome, "id"):
                is_whole = self._fold_absent(manifest, visible, outcome)
            if is_whole:
                self._note_watched(manifest, visible)

    def _fold_incoming(self, manifest: Manifest, outcome: Outcome) -> None:
        """Fold rows of different events: classify each, then write versions and the state."""
        stamp = {"batch_id": manifest.batch_id, "feed": manifest.feed, "plan": manifest.plan}
        content_at = {"content_at": manifest.content_at}
        self._run("classify_rows", **content_at, **_IMPACT_BITS)
        counted = self._rows("count_verdicts")
        verdicts = {verdict: rows for verdict, rows, *_ in counted}
        accepted = [row for row in counted if row[0] in ("same", "differs", "unchanged")]
        ends_absences = any(ends for _, _, ends, _ in accepted)
        outcome.stale += verdicts.get("stale", 0)
        if verdicts.get("new"):
            self._run("find_creations")
        if verdicts.get("differs"):
            kinds = self._find_new_versions()
        observed_at = {"observed_at": manifest.observed_at}
        if ends_absences:
            self._run("find_found", **observed_at)
            self._log_absences(manifest)
        if verdicts.get("unchanged"):
            self._run("touch_unchanged", **content_at, **observed_at)
        if ends_absences:
            self._run("end_absences")
        if any(has_bands for *_, has_bands in accepted):
            self._run("forget_scores", **_IMPACT_BITS)
        unversioned = verdicts.get("same", 0) + verdicts.get("differs", 0)
        if verdicts.get("differs"):
            unversioned -= kinds.get("versions", 0)
            if kinds:
                self._replace_versions("new_versions", **stamp)
                self._run("mark_versioned")
            outcome.count(kinds)
        if unversioned:
            self._run("touch_seen", updated_at_bit=BIT["updated_at"])
        if verdicts.get("new"):
            self._run_dated("add_first_versions", "first_sightings", **stamp)
            outcome.count(dict(self._rows("count_first_versions")))
        if verdicts and manifest.feed in ("cancellations", "event", "deliveries"):
            self._run("note_cancellations", batch_id=manifest.batch_id)
        if verdicts and manifest.feed in ("events", "event", "deliveries", "export"):
            self._run("merge_labels")

    def _find_new_versions(self) -> dict[str, int]:
        """Find the next versions of events; return how many have each kind, and `versions`."""
        bits = {"updated_at_bit": BIT["updated_at"], "compared_bits": _COMPARED, **_IMPACT_BITS}
        self._run("name_change_kinds", **bits)
        kinds = dict(self._rows("count_change_kinds"))
        kinds.pop(None, None)
        if kinds.pop("redated", 0):
            self._run_dated("date_new_versions", "redated_versions")
        return kinds

    def _fold_absent(self, manifest: Manifest, visible: VisibleScope, outcome: Outcome) -> bool:
        """Make events missing; return whether the batch is not doubted."""
        filters = self._filters(visible)
        if filters is None:
            return True
        self._run(
            "find_absent",
            **filters,
            content_at=manifest.content_at,
            is_proving_export=_is_proving_export(manifest),
            cancellations_seen=[
                {"since": batch.since, "observed_at": batch.observed_at}
                for batch in self.cancellations_seen
            ],
        )
        if manifest.feed == "export" and not outcome.released:
            outcome.flagged = self._too_few(manifest)
        if outcome.flagged is not None:
            self._run("doubt_absences", content_at=manifest.content_at)
            self._run("keep_repeated")
        self._mark_absent(manifest, outcome)
        return outcome.flagged is None

    def _fold_not_found(self, manifest: Manifest, outcome: Outcome) -> None:
        visible = find_visible_scope(manifest)
        parameters = {
            "is_proof": proves_withdrawal(visible.plan),
            "content_at": manifest.content_at,
            "lower": visible.lower,
            "upper": visible.upper,
        }
        self._run("touch_still_withdrawn", **parameters)
        self._run("find_not_found", **parameters, covered=self._covered(visible))
        self._mark_absent(manifest, outcome)

    def _mark_absent(self, manifest: Manifest, outcome: Outcome) -> None:
        """Make absent events missing, or withdrawn where there is proof."""
        times = {"observed_at": manifest.observed_at, "content_at": manifest.content_at}
        ((missing, withdrawn),) = self._rows("count_absent")
        if not missing:
            return
        outcome.missing += missing
        self._run("find_absence_changes", observed_at=manifest.observed_at)
        self._log_absences(manifest)
        self._run("mark_missing", **times, is_proving_export=_is_proving_export(manifest))
        if withdrawn:
            stamp = {"batch_id": manifest.batch_id, "feed": manifest.feed, "plan": manifest.plan}
            self._run("find_withdrawn", **times)
            self._replace_versions("withdrawn", **stamp)
            self._run("take_withdrawn_seen")
            outcome.count({"withdrawn": withdrawn})

    def _fold_coins(self, manifest: Manifest, outcome: Outcome) -> None:
        """Fold a pull of coins; only a complete pull changes ranks."""
        observed_at, content_at = manifest.observed_at, manifest.content_at
        times = {"observed_at": observed_at, "content_at": content_at}
        ((is_newest,),) = self._rows("is_newest_pull", content_at=content_at)
        ranks = manifest.complete and is_newest and outcome.good > 0
        self._run("merge_coins", **times, ranks=ranks)
        if ranks:
            is_named = outcome.released or not self._flag_nameless(outcome, "slug")
            is_proof = is_named and find_plan(manifest.plan).coverage_top is None
            self._run("mark_coins_unseen", **times, is_proof=is_proof)
            self._run("remove_from_snapshot", observed_at=observed_at)
            self._run("add_to_snapshot", observed_at=observed_at, batch_id=manifest.batch_id)
        self._run("begin_coin_absences")
        self._run("end_coin_absences", observed_at=observed_at)

    def _flag_nameless(self, outcome: Outcome, naming: str) -> bool:
        """Flag a batch with rejected rows of unknown events, since no event is then certainly
        absent."""
        count = self._rows("count_rejected_of_anyone", naming=naming)[0][0]
        if count:
            rows = "1 rejected row names" if count == 1 else f"{count} rejected rows name"
            noun = "event" if naming == "id" else "coin"
            outcome.flagged = f"{rows} no {noun}, so the batch makes no {noun} missing"
        return bool(count)

    def _too_few(self, manifest: Manifest) -> str | None:
        """Return why an export looks incomplete: it has too few of the announced rows, or lacks too
        many events that the exports before it showed. Returns None if it does not."""
        ((newly, received),) = self._rows("count_newly_absent")
        expected, claimed = newly + received, manifest.rows_claimed or 0
        if received < ENOUGH_ROWS_SHARE * claimed:
            why = f"only {received} of {claimed} announced rows arrived"
        elif received < ENOUGH_ROWS_SHARE * expected:
            why = f"{newly} of {expected} events ({newly / expected:.0%}) are newly absent"
        else:
            return None
        return (
            f"{why}. They are missing when the next export of another snapshot lacks them too, or "
            f"after `almanac batches release {manifest.batch_id}`"
        )

    def _filters(self, visible: VisibleScope) -> dict[str, Any] | None:
        """Return the visible scope as parameters; None if a category of it is not known."""
        categories: list[str] | None = None
        if visible.categories is not None:
            names = dict(self._rows("list_category_names"))
            if not all(name in names for name in visible.categories):
                return None
            categories = [names[name] for name in visible.categories]
        return {
            "lower": visible.lower,
            "upper": visible.upper,
            "coins": None if visible.coins is None else list(visible.coins),
            "categories": categories,
            "covered": self._covered(visible),
        }

    def _covered(self, visible: VisibleScope) -> list[str] | None:
        """Return the coins that the plan covers, by their last known ranks; None means all."""
        if visible.plan.coverage_top is None:
            return None
        return [slug for (slug,) in self._rows("list_top_coins", top=visible.plan.coverage_top)]

    def _known_lists(self) -> KnownLists:
        names = dict(self._rows("list_category_names"))
        known = {name for pair in names.items() for name in pair if name}
        return KnownLists(frozenset(known), self._list_separator or self.separator)

    def _note_cancellations(self, manifest: Manifest) -> None:
        since = manifest.scope.since
        if since is None:
            return
        new = CancellationSpan(
            since=since, until=manifest.content_at, observed_at=manifest.observed_at
        )
        self.cancellations_seen = add_cancellations(self.cancellations_seen, new)

    def _note_watched(self, manifest: Manifest, visible: VisibleScope) -> None:
        """Record the span of an observation that showed all events, without a coverage limit."""
        if not visible.covers_all_coins:
            return
        span = WatchedSpan(
            lower=visible.lower,
            upper=visible.upper or END_OF_TIME,
            since=manifest.content_at,
            coins=visible.coins,
            categories=visible.categories,
        )
        if span.lower <= span.upper and self.watched.add(span):
            self.write_watched()

    def write_watched(self) -> None:
        """Write the watched spans to the table that the statements read, categories by name."""
        self.connection.execute("DELETE FROM watched_spans")
        names = dict(self._rows("list_category_names"))
        for span in self.watched.spans:
            categories = span.categories
            self._run(
                "watch_span",
                coins=None if span.coins is None else list(span.coins),
                categories=None if categories is None else [names.get(c, c) for c in categories],
                lower=span.lower,
                upper=span.upper,
                since=span.since,
            )

    def _run(self, name: str, **values: Any) -> None:
        self.connection.execute(parse(_SQL[name]), values)

    def _run_dated(self, name: str, rows: str, **values: Any) -> None:
        dated = _SQL.fill("dated", rows=_SQL[rows])
        self.connection.execute(parse(_SQL.fill(name, dated=dated)), values)

    def _replace_versions(self, rows: str, **stamp: Any) -> None:
        """End the current versions of events, and take the next ones."""
        self.connection.execute(parse(_SQL.fill("end_versions", rows=rows)))
        self.connection.execute(parse(_SQL.fill("take_versions", rows=rows)), stamp)

    def _log_absences(self, manifest: Manifest) -> None:
        self._run("remove_absences")
        self._run("log_absences", batch_id=manifest.batch_id)

    def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(parse(_SQL[name]), values).fetchall()


def _is_proving_export(manifest: Manifest) -> bool:
    return manifest.feed == "export" and proves_withdrawal(find_plan(manifest.plan))
