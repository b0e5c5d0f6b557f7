"""The reference as one HTML page, made from the OpenAPI document.

No script, no font, no address outside the page: it looks the same without the internet, and a
strict Content-Security-Policy needs to allow only the inline style. Jinja escapes every text. The
page shows the Markdown that the contract's texts use: paragraphs, `## ` headings and code.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup, escape

from catalog.contract.openapi import openapi_document

Node = Mapping[str, Any]
_CURL_PARAMETERS_MAX = 3


@cache
def docs_html() -> bytes:
    """Return the page, UTF-8; the same bytes each time."""
    return render_docs(openapi_document()).encode()


def render_docs(document: Node) -> str:
    def resolve(node: Node) -> Node:
        found: Any = document if "$ref" in node else node
        for step in node.get("$ref", "#").split("/")[1:]:
            found = found[step]
        resolved: Node = found
        return resolved

    folder = files("catalog.server")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "inline": mark_code,
        "prose": mark_prose,
        "resolve": resolve,
        "slug": slug,
        "title": lambda name: re.sub("([A-Z])", lambda m: " " + m[1].lower(), name).capitalize(),
        "indented_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    page = environment.from_string(folder.joinpath("docs_page.html").read_text(encoding="utf-8"))
    return page.render(
        document=document,
        operations=[(path, item["get"]) for path, item in document["paths"].items()],
        style=Markup(folder.joinpath("docs_page.css").read_text(encoding="utf-8")),
        headings=re.findall(r"^## (.+)$", document["info"]["description"], re.MULTILINE),
        rules=list_rules,
        curl=make_curl_command,
    )


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def mark_code(text: str) -> Markup:
    """Return one run of text with its code marked."""
    pieces = map(escape, " ".join(text.split()).split("`"))
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if i % 2 else piece
        for i, piece in enumerate(pieces)
    )


def mark_prose(text: str) -> Markup:
    """Return the blocks of a text; the id of a heading is made from its text."""
    blocks = (each.partition("## ") for each in text.strip().split("\n\n"))
    return Markup("\n").join(
        Markup('<h3 id="{}">{}</h3>').format(slug(title), mark_code(title))
        if sign and not before
        else Markup("<p>{}</p>").format(mark_code(before + sign + title))
        for before, sign, title in blocks
    )


def list_rules(schema: Node) -> list[str]:
    """Return the bounds of a type; the description explains a pattern."""
    kinds = (schema, *schema.get("oneOf", []))
    values = [", ".join(map(str, each["enum"])) for each in kinds if "enum" in each]
    bounds = [
        f"{name} {each[name]}"
        for each in kinds
        for name in ("minimum", "maximum", "minLength", "maxLength", "format", "default")
        if name in each
    ]
    return values + bounds


def make_curl_command(path: str, operation: Node) -> str:
    """Return a request that any plan may make."""
    shown: list[str] = []
    for each in operation["parameters"]:
        value = json.dumps(each.get("example", "")).strip('"')
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(value))
        elif each["in"] == "query" and value and "x-least-plan" not in each:
            shown.append(f"{each['name']}={quote(value, safe=',:')}")
    query = "?" + "&".join(shown[:_CURL_PARAMETERS_MAX]) if shown else ""
    key = "" if operation.get("security") == [] else '-H "x-api-key: $API_KEY" \\\n  '
    return f'curl {key}"$BASE_URL{path}{query}"'
