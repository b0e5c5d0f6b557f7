"""The reference page has the whole content of the document, and loads nothing from outside."""

import re
from html.parser import HTMLParser
from typing import Any

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS
from catalog.server.docs_page import docs_html, render_docs

DOCUMENT = openapi_document()
PAGE = docs_html().decode()
VOID = {"meta"}


class Reading(HTMLParser):
    """Collects tags, ids, links and text, and checks that every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


READ = Reading(PAGE)


def test_page_is_the_same_each_time_it_is_made() -> None:
    docs_html.cache_clear()
    assert docs_html().decode() == PAGE


def test_page_has_no_script_and_loads_nothing() -> None:
    assert not READ.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name in READ.attributes if name.startswith("on") or name == "style"}
    assert {link for link in READ.links if not link.startswith("#")} == {"/v2/openapi.json"}
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    assert "url(" not in style and "@import" not in style


def test_every_link_inside_the_page_has_a_target_and_no_id_occurs_twice() -> None:
    assert len(READ.ids) == len(set(READ.ids))
    assert {link[1:] for link in READ.links if link.startswith("#")} <= set(READ.ids)


def test_page_has_every_operation_parameter_status_schema_field_and_plan() -> None:
    ids = set(READ.ids)
    for path, path_item in DOCUMENT["paths"].items():
        assert path in READ.text
        assert path_item["get"]["operationId"] in ids
    for parameter in DOCUMENT["components"]["parameters"].values():
        assert parameter["name"] in READ.text
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert f"schema-{name}" in ids
        for field in schema.get("properties", {}):
            assert f"<code>{field}</code>" in PAGE
    for code in DOCUMENT["components"]["schemas"]["ErrorCode"]["enum"]:
        assert code in READ.text
    for plan in PLANS:
        assert f">{plan.capitalize()}</th>" in PAGE


def test_page_shows_no_markdown_signs() -> None:
    assert "`" not in READ.text
    assert "**" not in READ.text
    assert "\n## " not in READ.text


def test_text_from_every_source_is_escaped() -> None:
    hostile = '<script>alert("x")</script>'

    def spoil(node: Any, name: str = "") -> Any:
        """Return a copy of the document with hostile text in each text that the page shows."""
        if isinstance(node, dict):
            return {key: spoil(value, key) for key, value in node.items()}
        if isinstance(node, list):
            return [spoil(value, name) for value in node]
        shown = {"description", "summary", "title", "when", "format", "example", "x-code-sample"}
        return f"{node} {hostile}" if isinstance(node, str) and name in shown else node

    page = render_docs(spoil(DOCUMENT))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 100
    Reading(page)


def test_curl_example_requests_only_what_every_plan_may() -> None:
    commands = re.findall(r"<pre><code>(curl [^<]*)</code>", PAGE)
    assert len(commands) == len(DOCUMENT["paths"])
    for command in commands:
        assert "{" not in command
        assert "impactMin" not in command and "categories=" not in command
