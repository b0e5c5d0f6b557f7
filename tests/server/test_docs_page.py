import re
from html import unescape
from typing import Any

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS
from catalog.server.docs_page import render_docs

DOCUMENT = openapi_document()
PAGE = render_docs(DOCUMENT)


IDS = re.findall(r' id="([^"]*)"', PAGE)
LINKS = re.findall(r' (?:href|src)="([^"]*)"', PAGE)
TEXT = unescape(re.sub(r"<[^>]*>", "", PAGE))


def test_page_is_stable_and_has_no_script_no_markdown_and_loads_nothing() -> None:
    assert render_docs(DOCUMENT) == PAGE
    assert not re.search(r"<(script|link|img|iframe|object|base|form)\b| (on\w+|style)=", PAGE)
    assert {link for link in LINKS if not link.startswith("#")} == {"/v2/openapi.json"}
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    assert "url(" not in style and "@import" not in style
    assert not [sign for sign in ("`", "**", "\n## ") if sign in TEXT]
    assert len(IDS) == len(set(IDS))
    assert {link[1:] for link in LINKS if link.startswith("#")} <= set(IDS)


def test_page_has_every_operation_parameter_schema_field_code_and_plan() -> None:
    operations = [item["get"] for item in DOCUMENT["paths"].values()]
    schemas = DOCUMENT["components"]["schemas"]
    ids = {each["operationId"] for each in operations} | {f"schema-{name}" for name in schemas}
    assert ids <= set(IDS)
    texts = {*DOCUMENT["paths"], *schemas["Error"]["properties"]["code"]["enum"]}
    texts |= {parameter["name"] for each in operations for parameter in each["parameters"]}
    assert not [text for text in texts if text not in TEXT]
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
