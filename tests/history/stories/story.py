"""The batches landed from a sandbox, and their observations."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx

from catalog.contract.plans import PLANS
from catalog.sandbox.sandbox import Sandbox
from resources.http.client import CatalogClient
from resources.ingest.paged_pull import LandedBatch
from resources.ingest.puller import Puller
from tests.history.model.observations import SeenObservation
from tests.history.stories.receiver import Post, with_batch
from tests.history.stories.relanded import Cut
from tests.unlimited import Unlimited
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import Landing

Pulling = Callable[[Puller], LandedBatch | list[LandedBatch]]
PULLS_OF_KEY = {"free": 1, "standard": 3, "pro": 6, "elite": 20}


@dataclass(frozen=True, slots=True)
class Setting:
    """The world and the start. `pace` multiplies its changes."""

    seed: int
    pace: float
    starts: datetime
    polls: tuple[str, ...]
    """Times of the day. At 00:00 the content is still of the day before."""
    posted: tuple[str, ...]
    """When the deliveries received so far are landed."""
    look_ups: int
    """The most look-ups of a poll on Pro and Elite."""

    @property
    def source(self) -> str:
        return f"sandbox:{self.seed}"


@dataclass(slots=True)
class Story:
    """Batches in the order in which they were landed, and their observations."""

    setting: Setting
    batches: list[Manifest] = field(default_factory=list)
    observations: list[SeenObservation] = field(default_factory=list)

    def folded(self) -> list[SeenObservation]:
        return sorted(self.observations, key=lambda observation: observation.fold_key)

    def add(self, manifest: Manifest, first_rows: int | None = None) -> None:
        """Add a batch; the same answer in the same second is the same batch."""
        if manifest in self.batches:
            return
        self.batches.append(manifest)
        if manifest.feed != "categories":
            self.observations.append(observation_of(manifest, first_rows=first_rows))


class StoryBuilder:
    """Pulls from a sandbox into a landing, and records the story."""

    def __init__(
        self, setting: Setting, sandbox: Sandbox, root: Path, scratch: Path, stack: ExitStack
    ) -> None:
        self.story = Story(setting)
        self._sandbox = sandbox
        self._landing = Landing(root)
        self._scratch = Landing(scratch)
        self._stack = stack
        self._clients: dict[str, tuple[int, CatalogClient]] = {}

    def pull(self, plan: str, pulling: Pulling, *, cut: Cut | None = None) -> Manifest:
        """Pull under a plan and return the last batch; `cut` lands less than arrived."""
        puller = Puller(
            self._client(plan),
            self._landing if cut is None else self._scratch,
            plan=PLANS[plan],
            source=self.story.setting.source,
            clock=self._sandbox.clock.now,
        )
        landed = pulling(puller)
        for outcome in landed if isinstance(landed, list) else [landed]:
            if cut is None:
                self.story.add(outcome.manifest)
            else:
                self.story.add(*cut(self._scratch, self._landing, outcome.manifest))
        return self.story.batches[-1]

    def post(self, post: Post) -> None:
        """Land deliveries, each of which is an observation."""
        pull, bodies, observations = post
        manifest = self._landing.land(pull, bodies)
        self.story.batches.append(manifest)
        self.story.observations += [
            with_batch(manifest, observation) for observation in observations
        ]

    def _client(self, plan: str) -> CatalogClient:
        """Return a client of a key that has burst left, so that limits are never reached."""
        used, client = self._clients.get(plan, (0, None))
        if client is None or used >= PULLS_OF_KEY[plan]:
            used, key = 0, self._sandbox.new_key(plan)
            network = httpx.HTTPTransport(verify=False)
            client = CatalogClient(
                self._sandbox.base_url, key, limiter=Unlimited(), transport=network
            )
            self._stack.callback(client.close)
        self._clients[plan] = used + 1, client
        return client


def observation_of(manifest: Manifest, *, first_rows: int | None = None) -> SeenObservation:
    """Return the observation of a batch of any feed but deliveries."""
    scope = manifest.scope
    return SeenObservation(
        kind=manifest.feed,
        observed_at=manifest.observed_at,
        plan=manifest.plan,
        batch_id=manifest.batch_id,
        complete=manifest.complete,
        lower=scope.lower,
        upper=scope.upper,
        coins=None if scope.coins is None else frozenset(scope.coins),
        categories=None if scope.categories is None else frozenset(scope.categories),
        event_id=scope.event_id,
        since=scope.since,
        rows_claimed=manifest.rows_claimed,
        first_rows=first_rows,
    )
