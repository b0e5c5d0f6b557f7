"""The reference page has the whole content of the document, and loads nothing from outside."""

import re
from html.parser import HTMLParser
from typing import Any

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS
from catalog.server.docs_page import docs_html, render_docs

DOCUMENT = openapi_document()
PAGE = docs_html().decode()


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
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


READ = Reading(PAGE)


def test_page_is_stable_and_has_no_script_no_markdown_and_loads_nothing() -> None:
    docs_html.cache_clear()
    assert docs_html().decode() == PAGE
    assert not READ.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name in READ.attributes if name.startswith("on") or name == "style"}
    assert {link for link in READ.links if not link.startswith("#")} == {"/v2/openapi.json"}
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    assert "url(" not in style and "@import" not in style
    assert not [sign for sign in ("`", "**", "\n## ") if sign in READ.text]


def test_every_link_inside_the_page_has_a_target_and_no_id_occurs_twice() -> None:
    assert len(READ.ids) == len(set(READ.ids))
    assert {link[1:] for link in READ.links if link.startswith("#")} <= set(READ.ids)


def test_page_has_every_operation_parameter_schema_field_code_and_plan() -> None:
    operations = [item["get"] for item in DOCUMENT["paths"].values()]
    schemas = DOCUMENT["components"]["schemas"]
    ids = {each["operationId"] for each in operations} | {f"schema-{name}" for name in schemas}
    assert ids <= set(READ.ids)
    texts = {*DOCUMENT["paths"], *schemas["Error"]["properties"]["code"]["enum"]}
    texts |= {parameter["name"] for each in operations for parameter in each["parameters"]}
    assert not [text for text in texts if text not in READ.text]
    fields = [field for schema in schemas.values() for field in schema.get("properties", {})]
    assert not [field for field in fields if f"<code>{field}</code>" not in PAGE]
    assert not [plan for plan in PLANS if f">{plan.capitalize()}</th>" not in PAGE]
    commands = re.findall(r"<pre><code>(curl [^<]*)</code>", PAGE)
    assert len(commands) == len(operations)
    # Every plan may send them.
    assert not re.search(r"\{|impactMin|categories=", "".join(commands))


def test_text_from_every_source_is_escaped() -> None:
    hostile = '<script>alert("x")</script>'
    shown = {"description", "summary", "title", "when", "format", "example", "x-code-sample"}

    def spoil(node: Any, name: str = "") -> Any:
        """Return a copy of the document with hostile text in each text that the page shows."""
        if isinstance(node, dict):
            return {key: spoil(value, key) for key, value in node.items()}
        if isinstance(node, list):
            return [spoil(value, name) for value in node]
        return f"{node} {hostile}" if isinstance(node, str) and name in shown else node

    page = render_docs(spoil(DOCUMENT))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 100
    Reading(page)
