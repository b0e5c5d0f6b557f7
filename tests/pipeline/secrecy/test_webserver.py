"""Dagster's pages behind the guard: no foreign page can change anything."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import httpx
import pytest
import uvicorn
from dagster import DagsterInstance
from websockets.sync.client import connect

from pipeline.ui.webserver import guarded
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.secrecy.path_forms import FORMS
from tests.server.foreign_requests import (
    FOREIGN,
    JSON,
    REFUSED,
    WEBSOCKET,
    Foreign,
    status_of,
)

KEY = "set-by-a-page"
CHANGE = 'mutation { setConcurrencyLimit(concurrencyKey: "set-by-a-page", limit: 1) }'
NAME = "almanac.internal"


PREFIX = "/behind/proxy"


class Pages:
    """The real application behind the guard, on a port of its own."""

    def __init__(
        self,
        instance: DagsterInstance,
        host: str,
        stack: ExitStack,
        *,
        prefix: str = "",
        parser: Literal["h11", "httptools"] = "httptools",
    ) -> None:
        # Imported here: every worker collects these tests, one runs them, and the import takes 1 s.
        from dagster._core.workspace.context import WorkspaceProcessContext
        from dagster_webserver.app import create_app_from_workspace_process_context

        self.instance = instance
        workspace = stack.enter_context(WorkspaceProcessContext(instance, None, version="tested"))
        pages = create_app_from_workspace_process_context(workspace, prefix)
        app = guarded(pages, host, [NAME], path_prefix=prefix)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        config = uvicorn.Config(
            app, host="127.0.0.1", port=self.port, http=parser, log_level="critical"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(setattr, server, "should_exit", True)
        wait_for(lambda: server.started)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def changed(self) -> bool:
        """Whether the change took place; it is undone."""
        storage = self.instance.event_log_storage
        if KEY not in storage.get_concurrency_keys():
            return False
        storage.delete_concurrency_limit(KEY)
        return True


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    from dagster._core.test_utils import instance_for_test

    folder = tmp_path_factory.mktemp("dagster")
    with ExitStack() as stack:
        instance = stack.enter_context(
            instance_for_test(temp_dir=str(folder), overrides={"telemetry": {"enabled": False}})
        )
        yield Pages(instance, "127.0.0.1", stack)


@pytest.fixture(scope="module")
def other_pages(pages: Pages) -> Iterator[Pages]:
    """The same behind a path, and with uvicorn's other parser."""
    with ExitStack() as stack:
        yield Pages(pages.instance, "127.0.0.1", stack, prefix=PREFIX, parser="h11")


def test_the_mutation_of_these_tests_takes_effect(pages: Pages) -> None:
    answer = httpx.post(
        f"{pages.address}/graphql", json={"query": CHANGE}, trust_env=False, timeout=HANGS_AFTER_S
    )
    assert answer.json() == {"data": {"setConcurrencyLimit": True}}
    assert pages.changed()


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda foreign: foreign.name)
def test_what_is_foreign_is_refused_and_changes_nothing(pages: Pages, foreign: Foreign) -> None:
    assert status_of(foreign, pages.port, CHANGE) in REFUSED
    assert not pages.changed()


MUTATIONS = {
    "launch": "mutation { launchRun(executionParams: {selector: {}}) { __typename } }",
    "launch a backfill": "mutation { launchPartitionBackfill(backfillParams: {}) { __typename } }",
    "delete": 'mutation { deleteRun(runId: "x") { __typename } }',
    "terminate": 'mutation { terminateRun(runId: "x") { __typename } }',
    "wipe": "mutation { wipeAssets(assetPartitionRanges: []) { __typename } }",
    "shut down": 'mutation { shutdownRepositoryLocation(repositoryLocationName: "almanac")'
    " { __typename } }",
    "reload": "mutation { reloadWorkspace { __typename } }",
    "stop a sensor": 'mutation { stopSensor(id: "x") { __typename } }',
}
WAYS = {
    "a foreign host": Foreign("", "POST", "/graphql", (JSON,), ("Host: evil.example",)),
    "a foreign page": Foreign("", "POST", "/graphql", (JSON, "Origin: http://evil.example")),
    "a foreign form": Foreign("", "POST", "/graphql", ("Content-Type: text/plain",)),
    "another site": Foreign("", "POST", "/graphql", (JSON, "Sec-Fetch-Site: cross-site")),
    "a link": Foreign("", "GET", "/graphql?<query>", ()),
    "a websocket": Foreign("", "GET", "/graphql", (*WEBSOCKET, "Origin: http://evil.example")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_no_foreign_page_launches_deletes_or_shuts_down(
    pages: Pages, mutation: str, way: str
) -> None:
    assert status_of(WAYS[way], pages.port, MUTATIONS[mutation]) in (*REFUSED, 415)


def answer_of(pages: Pages, method: str, target: str, *lines: str, then: bytes = b"") -> bytes:
    """Send a request with the mutation in its target, and more bytes; return the answer."""
    target = target.replace("<query>", f"query={quote(CHANGE)}").replace("<encoded>", quote(CHANGE))
    head = [f"{method} {target} HTTP/1.1", "Host: <host>", *lines]
    text = "\r\n".join([*head, "", ""]).replace("<host>", f"127.0.0.1:{pages.port}")
    with socket.create_connection(("127.0.0.1", pages.port), timeout=HANGS_AFTER_S) as connection:
        connection.sendall(text.encode() + then)
        return connection.recv(65_536)


NAVIGATES = ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
PLAIN_POST = ("Content-Type: text/plain", "Content-Length: 0")
WITHOUT_ORIGIN = {
    "a link": ("GET", ("Sec-Fetch-Site: cross-site", *NAVIGATES)),
    "a request of an old browser": ("GET", ()),
    "a request for the head": ("HEAD", ()),
    "a form of an old browser": ("POST", PLAIN_POST),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_the_path_runs_a_mutation(pages: Pages, other_pages: Pages, form: str) -> None:
    for method, lines in WITHOUT_ORIGIN.values():
        for tried, target in ((pages, form), (other_pages, PREFIX + form)):
            answer = answer_of(tried, method, target, "Connection: close", *lines)
            assert not tried.changed()
            assert b"setConcurrencyLimit" not in answer


@pytest.mark.parametrize(
    ("path", "status"),
    [("/graphql", 405), ("/graphql/", 405), ("/graphql%0a", 400), ("/runs%0a", 400), ("/%00", 400)],
)
def test_a_query_in_the_url_and_a_path_with_control_characters_are_refused(
    pages: Pages, path: str, status: int
) -> None:
    answer = httpx.get(
        f"{pages.address}{path}?query=%7Bversion%7D", trust_env=False, timeout=HANGS_AFTER_S
    )
    assert answer.status_code == status


def test_an_operation_is_a_post_of_json(pages: Pages) -> None:
    types = ("text/plain", "text/plain; application/json", "application/graphql", "")
    for content_type in types:
        answer = httpx.post(
            f"{pages.address}/graphql",
            content=json.dumps({"query": CHANGE}),
            headers={"Content-Type": content_type},
            trust_env=False,
            timeout=HANGS_AFTER_S,
        )
        assert answer.status_code == 415
        assert not pages.changed()


def test_pages_keep_their_own_queries(pages: Pages) -> None:
    for path in ("/runs?q[]=tag%3Amutation", "/search?query=coins", "/assets/graphql?view=list"):
        answer = httpx.get(f"{pages.address}{path}", trust_env=False, timeout=HANGS_AFTER_S)
        assert answer.status_code == 200


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_the_path_opens_a_websocket_to_a_foreign_page(pages: Pages, form: str) -> None:
    start = json.dumps({"type": "start", "id": "1", "payload": {"query": CHANGE}}).encode()
    frame = b"\x81" + bytes([0x80 | 126]) + len(start).to_bytes(2) + bytes(4) + start
    for foreign in ("Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"):
        answer = answer_of(pages, "GET", form.partition("?")[0], *WEBSOCKET, foreign, then=frame)
        assert b" 101 " not in answer.partition(b"\r\n")[0]
    assert not pages.changed()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:8000", "[::1]:80", NAME, f"{NAME}:443"]
)
def test_known_hosts_are_answered_on_any_port(pages: Pages, host: str) -> None:
    answer = httpx.get(
        f"{pages.address}/server_info",
        headers={"Host": host},
        trust_env=False,
        timeout=HANGS_AFTER_S,
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:<port>", "http://127.0.0.1:<port>"),
        ("localhost:<port>", "http://localhost:<port>"),
        ("localhost", "http://localhost"),
        (NAME, f"https://{NAME}"),
        (f"{NAME}:443", f"https://{NAME}"),
    ],
)
def test_the_pages_own_requests_pass(pages: Pages, host: str, origin: str) -> None:
    """Also behind a proxy that ends TLS and keeps the Host."""
    headers = {
        "Host": host.replace("<port>", str(pages.port)),
        "Origin": origin.replace("<port>", str(pages.port)),
        "Sec-Fetch-Site": "same-origin",
    }
    question = {"query": "{ version }"}
    answer = httpx.post(
        f"{pages.address}/graphql",
        json=question,
        headers=headers,
        trust_env=False,
        timeout=HANGS_AFTER_S,
    )
    assert answer.json()["data"]["version"]


def test_a_link_from_elsewhere_opens_a_page(pages: Pages) -> None:
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    for path in ("/", "/asset-groups?view=list", "/runs"):
        answer = httpx.get(
            f"{pages.address}{path}", headers=headers, trust_env=False, timeout=HANGS_AFTER_S
        )
        assert answer.status_code == 200
        assert "<html" in answer.text


def test_subscriptions_of_the_pages_pass(pages: Pages) -> None:
    with connect(
        f"ws://127.0.0.1:{pages.port}/graphql",
        origin=f"http://127.0.0.1:{pages.port}",  # type: ignore[arg-type]
        subprotocols=["graphql-ws"],  # type: ignore[list-item]
        proxy=None,
    ) as websocket:
        websocket.send(json.dumps({"type": "connection_init", "payload": {}}))
        assert json.loads(websocket.recv(10))["type"] == "connection_ack"


def test_a_refused_request_gets_the_reason(pages: Pages) -> None:
    answer = httpx.get(
        pages.address, headers={"Host": "evil.example"}, trust_env=False, timeout=HANGS_AFTER_S
    )
    assert (answer.status_code, answer.text) == (
        421,
        "This server is not known as evil.example.\n",
    )


def test_a_server_on_every_address_accepts_the_requested_address(tmp_path: Path) -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("not called")

    rules = guarded(app, "0.0.0.0").rules  # type: ignore[arg-type]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}
    for host, server, refused in (
        (b"192.168.1.7:3000", "192.168.1.7", False),
        (b"192.168.1.8", "192.168.1.7", True),
        (b"myhost", "192.168.1.7", True),
    ):
        request = {**scope, "headers": [(b"host", host)], "server": (server, 3000)}
        assert (rules.refusal(request) is not None) is refused
