"""The queries behind Dagster's pages, sent to its web server over the home, and their times.

Each asks what the page of that name asks for its first screen, at the page's own limits.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, Final

import dagster as dg
import httpx
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_webserver.app import create_app_from_workspace_process_context

from pipeline.runs.place import LOCATION

_RUNS: Final = """
query { runsOrError(limit: 30) { ... on Runs { results {
  id status startTime endTime creationTime updateTime jobName tags { key value }
  assetSelection { path } stats { ... on RunStatsSnapshot { stepsSucceeded materializations } }
} } } runsCountA: runsOrError { ... on Runs { count } } }
"""
_RUN: Final = """
query($id: ID!) { runOrError(runId: $id) { ... on Run { id status
  stepStats { stepKey status startTime endTime }
  eventConnection { events { ... on MessageEvent { message timestamp eventType } } cursor } } } }
"""
_ASSET: Final = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { id
  partitionStats { numMaterialized numPartitions numFailed numMaterializing }
  assetMaterializations(limit: 100) { runId timestamp partition
    metadataEntries { label ... on IntMetadataEntry { intValue }
      ... on MarkdownMetadataEntry { mdStr } ... on TextMetadataEntry { text } }
    runOrError { __typename } }
  latestMaterializationByPartition(partitions: null) { timestamp runId }
  assetChecksOrError { ... on AssetChecks { checks { name
    executionForLatestMaterialization { runId status timestamp } } } }
} } }
"""
_PARTITIONS: Final = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { id
  partitionKeys
  assetPartitionStatuses { ... on TimePartitionStatuses { ranges { startKey endKey status } } }
  latestMaterializationByPartition { timestamp partition runId }
} } }
"""
_OVERVIEW: Final = """
query { assetNodes { id assetKey { path }
  partitionStats { numMaterialized numPartitions numFailed numMaterializing }
  assetMaterializations(limit: 1) { timestamp runId }
  assetChecksOrError { ... on AssetChecks { checks { name
    executionForLatestMaterialization { status timestamp } } } } } }
"""
_SENSORS: Final = """
query($of: RepositorySelector!) { sensorsOrError(repositorySelector: $of) {
  ... on Sensors { results { name sensorState {
    status ticks(limit: 1) { status timestamp skipReason } runs(limit: 1) { id } } } } } }
"""
_TICKS: Final = """
query($of: InstigationSelector!) { instigationStateOrError(instigationSelector: $of) {
  ... on InstigationState { ticks(dayRange: 1, limit: 25) { id status timestamp skipReason } } } }
"""
_HERE: Final = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query took: seconds, and those of a processor, which other work affects least."""

    seconds: float
    cpu_s: float


class Pages:
    """A web server over an instance, asked in this process."""

    def __init__(self, runner: asyncio.Runner, client: httpx.AsyncClient) -> None:
        self._runner = runner
        self._client = client

    def ask(self, query: str, **variables: Any) -> Asked:
        """Return what a query took; each field must have an answer."""
        began, used = perf_counter(), process_time()
        answer = self._runner.run(
            self._client.post("/graphql", json={"query": query, "variables": variables})
        )
        asked = Asked(perf_counter() - began, process_time() - used)
        found = answer.json()
        assert "errors" not in found, found["errors"]
        return asked

    def times(self, run_id: str, days: str, table: str) -> dict[str, Asked]:
        """Return what the queries behind each page take."""
        day_key, table_key = {"path": [days]}, {"path": [table]}
        return {
            "runs": self.ask(_RUNS),
            "run": self.ask(_RUN, id=run_id),
            "overview of assets": self.ask(_OVERVIEW),
            f"asset {table}": self.ask(_ASSET, key=table_key),
            f"asset {days}": self.ask(_ASSET, key=day_key),
            f"partitions of {days}": self.ask(_PARTITIONS, key=day_key),
            "sensors": self.ask(_SENSORS, of=_HERE),
            "ticks of a sensor": self.ask(_TICKS, of={**_HERE, "name": "unmerged_batches"}),
        }


@contextmanager
def opened_pages(instance: dg.DagsterInstance) -> Iterator[Pages]:
    """Serve the pages of an instance, with the definitions of this checkout."""
    target = ModuleTarget("pipeline.definitions", None, None, LOCATION)
    with WorkspaceProcessContext(instance, workspace_load_target=target) as workspace:
        app = create_app_from_workspace_process_context(workspace)
        transport = httpx.ASGITransport(app)
        with asyncio.Runner() as runner:
            client = httpx.AsyncClient(transport=transport, base_url="http://dagster")
            pages = Pages(runner, client)
            # The first query of all makes the schema, whatever it asks.
            pages.ask("query { version }")
            yield pages
