"""The reference as one HTML page, made from the OpenAPI document and the table of plans.

No script, no font, no address outside the page: it looks the same without the internet, and a
strict Content-Security-Policy needs to allow only the inline style. Jinja escapes every text. The
page shows the Markdown that the contract's texts use: paragraphs, `## ` headings, `- ` lists, code.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup, escape

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS, Plan

Node = Mapping[str, Any]

_CODE = re.compile(r"`([^`]+)`")
_CURL_PARAMETERS_MAX = 3


@cache
def docs_html() -> bytes:
    """Return the page, UTF-8; the same bytes each time."""
    return render_docs(openapi_document()).encode()


def render_docs(document: Node) -> str:
    """Return the page of one document."""

    def resolve(node: Node) -> Node:
        found: Any = node
        if "$ref" in node:
            found = document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
        resolved: Node = found
        return resolved

    def operations(tag: str) -> list[tuple[str, Node]]:
        found = ((path, item["get"]) for path, item in document["paths"].items())
        return [(path, operation) for path, operation in found if tag in operation["tags"]]

    folder = files("catalog.server")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "inline": mark_code,
        "prose": mark_prose,
        "resolve": resolve,
        "summary_and_id": lambda found: (found[1]["summary"], found[1]["operationId"]),
        "indented_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    page = environment.from_string(folder.joinpath("docs_page.html").read_text(encoding="utf-8"))
    return page.render(
        document=document,
        operations=operations,
        style=Markup(folder.joinpath("docs_page.css").read_text(encoding="utf-8")),
        headings=re.findall(r"^## (.+)$", document["info"]["description"], re.MULTILINE),
        anchors=lambda titles: [(title, slug(title)) for title in titles],
        schema_anchors=[(name, f"schema-{name}") for name in document["components"]["schemas"]],
        plans=list(PLANS.values()),
        plan_rows=_PLAN_ROWS,
        rules=list_rules,
        curl=curl_command,
    )


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def mark_code(text: str) -> Markup:
    """Return one run of text with its code marked."""
    pieces = map(escape, _CODE.split(" ".join(text.split())))
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if i % 2 else piece
        for i, piece in enumerate(pieces)
    )


def mark_prose(text: str) -> Markup:
    """Return the blocks of a text; the id of a heading is made from its text."""
    return Markup("\n").join(map(_mark_block, text.strip().split("\n\n")))


def _mark_block(block: str) -> Markup:
    if block.startswith("## "):
        title = block.removeprefix("## ")
        return Markup('<h3 id="{}">{}</h3>').format(slug(title), mark_code(title))
    if block.startswith("- "):
        items = map(mark_code, block.removeprefix("- ").split("\n- "))
        return Markup("<ul>{}</ul>").format(Markup().join(map(Markup("<li>{}</li>").format, items)))
    return Markup("<p>{}</p>").format(mark_code(block))


def list_rules(schema: Node) -> list[str]:
    """Return the bounds of a type; the description explains a pattern."""
    choices = schema.get("oneOf", [])
    rules = [", ".join(each["enum"]) for each in (schema, *choices) if "enum" in each]
    rules += [
        f"{each['minimum']} to {each['maximum']}"
        for each in (schema, *choices)
        if "maximum" in each
    ]
    if "minimum" in schema and "maximum" not in schema:
        rules.append(f"at least {schema['minimum']}")
    if "maxLength" in schema:
        rules.append(f"{schema.get('minLength', 0)} to {schema['maxLength']} characters")
    if "format" in schema:
        rules.append(schema["format"])
    if "default" in schema:
        rules.append(f"default {schema['default']}")
    return rules


def curl_command(path: str, parameters: list[Node], open_to_all: bool) -> str:
    """Return a request that any plan may make."""
    shown: list[str] = []
    for each in parameters:
        if "example" not in each:
            continue
        value = json.dumps(each["example"]).strip('"')
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(value))
        elif each["in"] == "query" and "x-least-plan" not in each:
            shown.append(f"{each['name']}={quote(value, safe=',:')}")
    query = "?" + "&".join(shown[:_CURL_PARAMETERS_MAX]) if shown else ""
    key = "" if open_to_all else '-H "x-api-key: $API_KEY" \\\n  '
    return f'curl {key}"$BASE_URL{path}{query}"'


def _days(count: int | None, words: str) -> str:
    return words if count is None else f"{count} days" if count else "none"


_PLAN_ROWS: tuple[tuple[str, Callable[[Plan], str]], ...] = (
    ("Requests a month", lambda p: "custom" if p.monthly_quota is None else f"{p.monthly_quota:,}"),
    ("Requests a second", lambda p: f"{p.rate_per_s:g}"),
    ("Burst", lambda p: str(p.burst)),
    ("Keys", lambda p: "custom" if p.keys_max is None else str(p.keys_max)),
    ("Seats", lambda p: "custom" if p.seats is None else str(p.seats)),
    ("Upcoming events", lambda p: _days(p.horizon_days, "all")),
    ("Past events", lambda p: _days(p.past_days, "since 2017")),
    ("Coins", lambda p: "all" if p.coverage_top is None else f"top {p.coverage_top}"),
    ("Description and categories", lambda p: "yes" if p.shows("description") else "no"),
    ("Source, snapshot and summary", lambda p: "yes" if p.shows("sourceUrl") else "no"),
    ("Impact", lambda p: p.impact.value),
    ("Behind by", lambda p: f"{p.freshness_s} s" if p.freshness_s < 3_600 else "24 h"),
    ("Webhooks", lambda p: "yes" if p.webhooks else "no"),
    ("Export", lambda p: "yes" if p.export else "no"),
)
