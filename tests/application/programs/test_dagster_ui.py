"""Dagster's pages behind the guard: no page of another site changes anything."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from application.dagster_ui import GuardedWebserver

CHANGE = 'mutation { setConcurrencyLimit(concurrencyKey: "x", limit: 1) }'
OWN = {"origin": "https://data.example.com", "sec-fetch-site": "same-origin"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def test_a_foreign_page_changes_nothing_and_own_pages_do(instance: dg.DagsterInstance) -> None:
    with WorkspaceProcessContext(instance, None, version="tested") as context:
        server = GuardedWebserver(context)
        server.names = ["data.example.com"]
        client = TestClient(server.create_asgi_app(), base_url="https://data.example.com")
        for path in ("/graphql", "/graphql%0a", "/%67raphql"):
            answer = client.get(path, params={"query": CHANGE})
            assert answer.status_code == 405, path
        for headers in (
            {"host": "evil.example"},
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            answer = client.post("/graphql", params={"query": CHANGE}, headers=headers)
            assert answer.status_code in (403, 421)
            assert "--known-as" in answer.text
            with (
                pytest.raises(WebSocketDisconnect),
                client.websocket_connect("wss://data.example.com/graphql", headers=headers),
            ):
                pass
        assert instance.event_log_storage.get_concurrency_keys() == set()
        with client.websocket_connect("wss://data.example.com/graphql", headers=OWN) as ws:
            ws.send_json({"type": "connection_init"})
            assert ws.receive_json() == {"type": "connection_ack"}
        answer = client.post("/graphql", json={"query": CHANGE}, headers=OWN)
        assert answer.json() == {"data": {"setConcurrencyLimit": True}}
        local = {"host": "10.0.0.7:3000"}  # A probe, and the GraphQL client.
        answer = client.post("/graphql", json={"query": "{ version }"}, headers=local)
        assert answer.status_code == 200
