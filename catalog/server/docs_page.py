"""The reference as one HTML page, made from the OpenAPI document and the table of plans.

No script, no font, no address outside the page: it looks the same without the internet, and a
strict Content-Security-Policy needs to allow no more than the inline style. Every text is escaped.
It reads the Markdown that the contract's texts use: paragraphs, `## ` headings, `- ` lists, code.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from catalog.contract.openapi import openapi_document
from catalog.contract.plans import PLANS, Plan

_CODE = re.compile(r"`([^`]+)`")
_VOID = frozenset({"meta", "link"})


class Html(str):
    """Text that is HTML already; any other text is escaped when it becomes a child."""

    __slots__ = ()


def join(*children: str) -> Html:
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in children))


def el(name: str, /, *children: str, **attributes: str) -> Html:
    """Return one element; `class_` is the attribute `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table; its wrapper scrolls when the screen is narrow."""
    heading = el("tr", *(el("th", cell, scope="col") for cell in head))
    body = [el("tr", *(el("td", cell) for cell in row)) for row in rows]
    return el(
        "div", el("table", el("thead", heading), el("tbody", *body)), class_="scroll", tabindex="0"
    )


def inline(text: str) -> Html:
    """Return one run of text with its code marked."""
    pieces = _CODE.split(" ".join(text.split()))
    return join(*(el("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)))


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def prose(text: str) -> Html:
    """Return the blocks of a text; a heading gets its own words as its id."""
    return join(*(_block(block) for block in text.strip().split("\n\n")))


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def _block(block: str) -> Html:
    if block.startswith("## "):
        title = block.removeprefix("## ")
        return el("h3", inline(title), id=slug(title))
    if block.startswith("- "):
        items = block.removeprefix("- ").split("\n- ")
        return el("ul", *(el("li", inline(item)) for item in items))
    return el("p", inline(block))


Node = Mapping[str, Any]

_CURL_PARAMETERS_MAX = 3


@cache
def docs_html() -> bytes:
    """Return the page, UTF-8; the same bytes each time."""
    return _Page(openapi_document()).html().encode()


class _Page:
    """Renders one document as HTML; it resolves the references."""

    def __init__(self, document: Node) -> None:
        self._document = document
        self._schemas: Node = document["components"]["schemas"]

    def html(self) -> str:
        style = files("catalog.server").joinpath("docs_page.css").read_text(encoding="utf-8")
        info = self._document["info"]
        head = el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("title", info["title"]),
            Html(f"<style>\n{style}</style>"),
        )
        body = el("body", self._contents(), el("main", *self._sections()))
        return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"

    def _contents(self) -> Html:
        info = self._document["info"]
        groups = [_links("Overview", [(title, slug(title)) for title in self._overview()])]
        for tag in self._document["tags"]:
            found = [
                (operation["summary"], operation["operationId"])
                for _, operation in self._operations(tag["name"])
            ]
            groups.append(_links(tag["name"], found))
        reference = [("Webhooks", "webhooks"), ("Error codes", "error-codes")]
        groups.append(_links("Reference", reference))
        groups.append(_links("Schemas", [(name, f"schema-{name}") for name in self._schemas]))
        return el("nav", el("p", info["title"], class_="name"), *groups, aria_label="Contents")

    def _overview(self) -> list[str]:
        return [*headings(self._document["info"]["description"]), "Compare the plans"]

    def _sections(self) -> list[Html]:
        info = self._document["info"]
        document_link = el("a", el("code", "/v2/openapi.json"), href="/v2/openapi.json")
        return [
            el("h1", info["title"]),
            el("p", f"Version {info['version']} · OpenAPI: ", document_link, class_="soft"),
            prose(info["description"]),
            el("h3", "Compare the plans", id="compare-the-plans"),
            _plan_table(),
            *(self._tag(tag) for tag in self._document["tags"]),
            self._webhooks(),
            self._error_codes(),
            el("h2", "Schemas"),
            *(self._schema(name) for name in self._schemas),
        ]

    def _operations(self, tag: str) -> list[tuple[str, Node]]:
        operations = (
            (path, path_item["get"]) for path, path_item in self._document["paths"].items()
        )
        return [(path, operation) for path, operation in operations if tag in operation["tags"]]

    def _tag(self, tag: Node) -> Html:
        found = [self._operation(path, each) for path, each in self._operations(tag["name"])]
        return el("section", el("h2", tag["name"]), prose(tag["description"]), *found)

    def _operation(self, path: str, operation: Node) -> Html:
        parameters = [self._resolved(each) for each in operation.get("parameters", [])]
        open_to_all = operation.get("security") == []
        return el(
            "article",
            el("h3", operation["summary"], " ", _plan_badge(operation, open_to_all=open_to_all)),
            el("div", el("span", "GET", class_="method"), el("code", path, class_="path")),
            prose(operation["description"]),
            el("pre", el("code", _curl(path, parameters, open_to_all=open_to_all))),
            self._parameters(parameters),
            self._responses(operation["responses"]),
            id=operation["operationId"],
        )

    def _parameters(self, parameters: list[Node]) -> Html:
        if not parameters:
            return Html()
        rows = [
            (
                join(
                    el("code", each["name"]),
                    el("span", " required", class_="required") if each.get("required") else "",
                ),
                join(self._type(each["schema"]), _rules(each["schema"])),
                each["in"],
                inline(each["description"]),
            )
            for each in parameters
        ]
        head = ("Name", "Type", "In", "Meaning")
        return join(el("h4", "Parameters"), table(head, rows))

    def _responses(self, responses: Node) -> Html:
        rows = []
        for status, reference in responses.items():
            response = self._resolved(reference)
            shade = "ok" if status < "400" else "bad"
            rows.append(
                (
                    el("span", status, class_=f"status {shade}"),
                    self._bodies(response.get("content", {})),
                    inline(response["description"]),
                    join(*_spaced(el("code", name) for name in response.get("headers", {}))),
                )
            )
        head = ("Status", "Body", "When", "Headers")
        return join(el("h4", "Answers"), table(head, rows))

    def _bodies(self, content: Node) -> Html:
        bodies = [
            join(
                self._type(media["schema"]),
                "" if kind == "application/json" else el("span", kind, class_="rule"),
            )
            for kind, media in content.items()
        ]
        return join(*bodies) if bodies else el("span", "none", class_="soft")

    def _webhooks(self) -> Html:
        hook: Node = self._document["x-webhooks"]["delivery"]["post"]
        body = hook["requestBody"]["content"]["application/json"]["schema"]
        return el(
            "section",
            el("h2", "Webhooks", id="webhooks"),
            el("h3", hook["summary"], " ", _plan_badge(hook, open_to_all=False)),
            prose(hook["description"]),
            el("p", "Body: ", self._type(body)),
            el("h4", "Verify a signature, in Python"),
            el("pre", el("code", hook["x-code-sample"])),
        )

    def _error_codes(self) -> Html:
        codes: Node = self._schemas["ErrorCode"]["x-codes"]
        rows = [
            (str(about["status"]), el("code", code, id=f"error-{code}"), inline(about["when"]))
            for code, about in codes.items()
        ]
        return el(
            "section",
            el("h2", "Error codes", id="error-codes"),
            el("p", "Each is in an ", self._link("ErrorBody"), "."),
            table(("Status", "Code", "When"), rows),
        )

    def _schema(self, name: str) -> Html:
        schema: Node = self._schemas[name]
        fields = schema.get("properties")
        return el(
            "article",
            el("h3", el("code", name)),
            prose(schema["description"]),
            self._fields(schema) if fields else el("p", self._type(schema), _rules(schema)),
            _example(schema),
            id=f"schema-{name}",
        )

    def _fields(self, schema: Node) -> Html:
        required = schema["required"]
        gated = any("x-least-plan" in each for each in schema["properties"].values())
        rows = []
        for name, each in schema["properties"].items():
            optional = "" if name in required else el("span", " optional", class_="soft")
            about = self._resolved(each)["description"]
            row = (
                join(el("code", name), optional),
                join(self._type(each), _rules(each)),
                *([_plan_name(each.get("x-least-plan", "free"))] if gated else []),
                inline(about),
            )
            rows.append(row)
        head = ("Field", "Type", *(["From plan"] if gated else []), "Meaning")
        return table(head, rows)

    def _type(self, schema: Node) -> Html:
        """Return the type in words, with links to the schemas it names."""
        if "$ref" in schema:
            return self._link(schema["$ref"].rpartition("/")[2])
        if choices := schema.get("oneOf"):
            return join(*_spaced((self._type(each) for each in choices), " or "))
        if parts := schema.get("allOf"):
            return self._type(parts[0])
        if schema["type"] == "array":
            return join("array of ", self._type(schema["items"]))
        return join(schema["type"], " or null" if schema.get("nullable") else "")

    def _link(self, name: str) -> Html:
        return el("a", name, href=f"#schema-{name}")

    def _resolved(self, node: Node) -> Node:
        if "$ref" not in node:
            return node
        found: Any = self._document
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        resolved: Node = found
        return resolved


def _links(title: str, targets: list[tuple[str, str]]) -> Html:
    items = [el("li", el("a", text, href=f"#{anchor}")) for text, anchor in targets]
    return join(el("h2", title), el("ul", *items))


def _spaced(items: Iterable[str], separator: str = ", ") -> list[str]:
    spaced = [piece for item in items for piece in (separator, item)]
    return spaced[1:]


def _plan_name(name: str) -> str:
    return name.capitalize()


def _plan_badge(node: Node, *, open_to_all: bool) -> Html:
    if open_to_all:
        return el("span", "no key needed", class_="badge")
    if least := node.get("x-least-plan"):
        return el("span", f"{_plan_name(least)} and above", class_="badge")
    return Html()


def _rules(schema: Node) -> Html:
    """Return the bounds of a type, one line each; the description explains a pattern."""
    rules = [", ".join(schema["enum"])] if "enum" in schema else []
    rules += [", ".join(each["enum"]) for each in schema.get("oneOf", []) if "enum" in each]
    rules += [
        f"{each['minimum']} to {each['maximum']}"
        for each in (schema, *schema.get("oneOf", []))
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
    return join(*(el("span", rule, class_="rule") for rule in rules))


def _example(schema: Node) -> Html:
    if "properties" not in schema or "example" not in schema:
        return Html()
    text = json.dumps(schema["example"], indent=2, ensure_ascii=False)
    return el("details", el("summary", "Example"), el("pre", el("code", text)))


def _curl(path: str, parameters: list[Node], *, open_to_all: bool) -> str:
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


def _plan_table() -> Html:
    plans = list(PLANS.values())
    rows = [(title, *(cell_of(plan) for plan in plans)) for title, cell_of in _PLAN_ROWS]
    note = "On Enterprise, rate, burst and quota are set per key; shown are the defaults."
    head = ("", *(_plan_name(plan.name) for plan in plans))
    return join(table(head, rows), el("p", note, class_="soft"))
