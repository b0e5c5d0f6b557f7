"""The fold: one look after another changes the state and adds versions to the log.

The rules are in docs/history.md. A fold holds the whole state in one database in memory; what
it says is a pure function of the looks, in their order. Belongs here: which statements a look
runs. Does not: the order of looks (looks.py), files (state.py, change_log.py).
"""

from typing import Any

import duckdb

from warehouse.batch_faults import judged
from warehouse.batches import Manifest
from warehouse.errors import BatchFailed
from warehouse.fields import BIT, plan_named
from warehouse.landing import Landing
from warehouse.looks import Look, first_key
from warehouse.normalise import Normalised, normalise
from warehouse.outcomes import Outcome, outcome_of, unread
from warehouse.reach import Reach, proves_withdrawal, reach_of
from warehouse.recall import Recall
from warehouse.statements import statement
from warehouse.watch import END_OF_TIME, CancellationsSeen, Span, Watch, with_cancellations

LEAST_SHARE = 0.98
"""An export with less than this share of the rows expected makes nothing missing."""


class Fold:
    """The state, and the log of versions since it was last emptied."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.watch = Watch()
        self.cancellations_seen: tuple[CancellationsSeen, ...] = ()
        self.failed: dict[str, str] = {}
        """Batches that can't be folded, and why: they are set aside unread."""
        self.reset()

    def reset(self) -> None:
        """Go back to knowing nothing."""
        self.watch = Watch()
        self.cancellations_seen = ()
        self._recall = Recall(self.connection)
        for name in ("state_tables", "fold_macros", "day_claims"):
            self.connection.execute(statement(name))

    def fold(self, look: Look, landing: Landing, *, released: bool = False) -> Outcome:
        """Fold one look in; return what became of it. `released`: a person trusts it.

        Raises:
            BatchFailed: the state is half changed; go on from an earlier one without the batch
                (`failed`).
            OwnFault: it failed, and not by what is in it; the state is half changed.
        """
        manifest = look.manifest
        if (why := self.failed.get(manifest.batch_id)) is not None:
            return unread(manifest, why, released=released)
        try:
            with judged(manifest):
                read = normalise(self.connection, landing, manifest, self._recall)
        except BatchFailed as failure:
            if look.key != first_key(manifest):
                raise  # Deliveries before these are in the state.
            self.failed[manifest.batch_id] = failure.why
            return unread(manifest, failure.why, released=released)
        with judged(manifest):
            return self._fold(look, read, released=released)

    def _fold(self, look: Look, read: Normalised, *, released: bool) -> Outcome:
        manifest = look.manifest
        outcome = outcome_of(manifest, read)
        outcome.released = released
        if read.quarantine is not None and not released:
            return outcome.quarantined(read.quarantine)
        if manifest.feed == "coins":
            self._fold_coins(manifest, outcome)
        elif manifest.feed == "categories":
            self._run("fold_categories", observed_at=manifest.observed_at)
            self.write_watched()
        elif manifest.feed == "deliveries":
            self._fold_deliveries(look, outcome)
        else:
            if read.duplicates:
                self._run("fold_wave")
            self._run("fold_wave_picked" if read.duplicates else "fold_wave_plain")
            self._fold_look(manifest, outcome, released=released)
        # The state has it now; the rows of a large look would fill the memory that is left.
        self._run("normalise_create_events")
        return outcome

    def _fold_deliveries(self, look: Look, outcome: Outcome) -> None:
        place = 1
        while True:
            self._run("fold_wave_deliveries", place=place, positions=list(look.positions or ()))
            self._run("fold_wave_picked")
            if not self._count("wave"):
                return
            self._fold_wave(look.manifest, outcome)
            place += 1

    def _fold_look(self, manifest: Manifest, outcome: Outcome, *, released: bool) -> None:
        reach = reach_of(manifest) if manifest.feed in ("events", "export") else None
        if reach is not None and manifest.feed == "export" and not released:
            outcome.flagged = self._too_few(manifest, reach)
        self._fold_wave(manifest, outcome)
        if not manifest.complete:
            return  # A partial look proves nothing absent.
        if manifest.feed == "event":
            self._fold_not_found(manifest, outcome)
        elif manifest.feed == "cancellations":
            self._note_cancellations(manifest)
        elif reach is not None and outcome.flagged is None:
            if released or not self._flag_anyones(outcome, "id"):
                self._fold_absent(manifest, reach, outcome)
            self._note_watched(manifest, reach)

    def _fold_wave(self, manifest: Manifest, outcome: Outcome) -> None:
        """Fold rows of different events: judge each, then write versions, then the state."""
        stamp = {"batch_id": manifest.batch_id, "feed": manifest.feed, "plan": manifest.plan}
        impact = {"impact_bit": BIT["impact"]}
        content_at = {"content_at": manifest.content_at}
        self._run("fold_judged", **content_at)
        verdicts = dict(self._rows("fold_verdicts"))
        outcome.stale += verdicts.get("stale", 0)
        if verdicts.get("new"):
            self._run("fold_created")
            self._run("fold_first")
        if verdicts.get("differs"):
            self._run("fold_differences", **impact)
            self._run("fold_kinds")
            self._run("fold_kinds_log", **stamp)
        if verdicts.get("again"):
            self._run("fold_seen_again", **content_at, observed_at=manifest.observed_at)
        if verdicts.get("same") or verdicts.get("differs"):
            self._run("fold_seen", **impact)
        if verdicts.get("differs"):
            self._run("fold_kinds_content")
            outcome.count(dict(self._rows("fold_kinds_counts")))
        if verdicts.get("new"):
            self._run("fold_first_log", **stamp)
            outcome.count(dict(self._rows("fold_first_counts")))
            self._run("fold_first_content")
            self._run("fold_first_sight")
        if verdicts and manifest.feed in ("cancellations", "event", "deliveries"):
            self._run("fold_cancelled", batch_id=manifest.batch_id)
        if verdicts and manifest.feed in ("events", "event", "deliveries", "export"):
            self._run("fold_labels")

    def _fold_absent(self, manifest: Manifest, reach: Reach, outcome: Outcome) -> None:
        filters = self._filters(reach)
        if filters is None:
            return
        self._run(
            "fold_absent",
            **filters,
            content_at=manifest.content_at,
            observed_at=manifest.observed_at,
            is_export=manifest.feed == "export" and proves_withdrawal(reach.plan),
            cancellations_seen=[
                {"since": one.since, "observed_at": one.observed_at}
                for one in self.cancellations_seen
            ],
        )
        self._fold_gone(manifest, outcome)

    def _fold_not_found(self, manifest: Manifest, outcome: Outcome) -> None:
        reach = reach_of(manifest)
        asked = {
            "is_proof": proves_withdrawal(reach.plan),
            "content_at": manifest.content_at,
            "lower": reach.lower,
            "upper": reach.upper,
        }
        self._run("fold_still_withdrawn", **asked)
        self._run("fold_not_found", **asked, covered=self._covered(reach))
        self._fold_gone(manifest, outcome)

    def _fold_gone(self, manifest: Manifest, outcome: Outcome) -> None:
        """Make the absent missing, and those that are absent for good withdrawn."""
        times = {"observed_at": manifest.observed_at, "content_at": manifest.content_at}
        missing = self._count("absent")
        if not missing:
            return
        outcome.missing += missing
        self._run(
            "fold_missing",
            observed_at=manifest.observed_at,
            is_export=manifest.feed == "export",
        )
        withdrawn = self._rows("fold_withdrawn_count")[0][0]
        if withdrawn:
            stamp = {"batch_id": manifest.batch_id, "feed": manifest.feed, "plan": manifest.plan}
            self._run("fold_withdrawn_log", **times, **stamp)
            self._run("fold_withdrawn_content", observed_at=manifest.observed_at)
            self._run("fold_withdrawn_sight", content_at=manifest.content_at)
            outcome.count({"withdrawn": withdrawn})

    def _fold_coins(self, manifest: Manifest, outcome: Outcome) -> None:
        times = {"observed_at": manifest.observed_at, "content_at": manifest.content_at}
        self._run("fold_coins", **times)
        top = plan_named(manifest.plan).coverage_top
        if manifest.complete and (outcome.released or not self._flag_anyones(outcome, "slug")):
            if top is None:
                self._run("fold_coins_missing", **times)
            else:
                self._run("fold_coins_outranked", content_at=manifest.content_at, top=top)
        self._run("fold_snapshot_remove")
        self._run("fold_snapshot_add", observed_at=manifest.observed_at, batch_id=manifest.batch_id)

    def _flag_anyones(self, outcome: Outcome, naming: str) -> bool:
        """Flag a look with rejected rows that may be anyone's: then none is absent for sure."""
        count = self._rows("fold_rejected_of_anyone", naming=naming)[0][0]
        if count:
            rows = "1 rejected row does" if count == 1 else f"{count} rejected rows do"
            outcome.flagged = f"{rows} not say whose, and it makes nothing missing"
        return bool(count)

    def _too_few(self, manifest: Manifest, reach: Reach) -> str | None:
        """Return why an export can't be all there is, judged by what was known and claimed."""
        filters = self._filters(reach)
        known = 0 if filters is None else self._rows("fold_expected", **filters)[0][0]
        expected = max(known, manifest.rows_claimed or 0)
        came = self._count("wave") + self._recall.again
        if came >= LEAST_SHARE * expected:
            return None
        return f"{came} events came, and {expected} were expected: it makes nothing missing"

    def _filters(self, reach: Reach) -> dict[str, Any] | None:
        """Return the reach as parameters; None when it can't be told what it covers."""
        categories: list[str] | None = None
        if reach.categories is not None:
            names = dict(self._rows("fold_category_names"))
            if not all(wanted in names for wanted in reach.categories):
                return None
            categories = [names[wanted] for wanted in reach.categories]
        return {
            "lower": reach.lower,
            "upper": reach.upper,
            "coins": None if reach.coins is None else list(reach.coins),
            "categories": categories,
            "covered": self._covered(reach),
        }

    def _covered(self, reach: Reach) -> list[str] | None:
        """Return the coins that the plan covers, as last ranked; None is all."""
        if reach.plan.coverage_top is None:
            return None
        return [slug for (slug,) in self._rows("fold_top_coins", top=reach.plan.coverage_top)]

    def _note_cancellations(self, manifest: Manifest) -> None:
        since = manifest.scope.since
        if since is None:
            return
        new = CancellationsSeen(
            since=since, until=manifest.content_at, observed_at=manifest.observed_at
        )
        self.cancellations_seen = with_cancellations(self.cancellations_seen, new)

    def _note_watched(self, manifest: Manifest, reach: Reach) -> None:
        """Remember a look that showed all there was; with a coverage it did not."""
        if not reach.covers_all_coins:
            return
        span = Span(
            lower=reach.lower,
            upper=reach.upper or END_OF_TIME,
            since=manifest.content_at,
            coins=reach.coins,
            categories=reach.categories,
        )
        if span.lower <= span.upper and self.watch.add(span):
            self.write_watched()

    def write_watched(self) -> None:
        """Put the watched spans where the statements read them, categories by name."""
        self.connection.execute("DELETE FROM watched")
        names = dict(self._rows("fold_category_names"))
        for span in self.watch.spans:
            categories = span.categories
            self._run(
                "fold_watch",
                coins=None if span.coins is None else list(span.coins),
                categories=None if categories is None else [names.get(c, c) for c in categories],
                lower=span.lower,
                upper=span.upper,
                since=span.since,
            )

    def _run(self, name: str, **values: Any) -> None:
        self.connection.execute(statement(name), values)

    def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement(name), values).fetchall()

    def _count(self, table: str) -> int:
        (count,) = self.connection.table(table).aggregate("count(*)").fetchall()[0]
        return int(count)
