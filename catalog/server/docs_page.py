"""The reference as one HTML page, made from the OpenAPI document.

No script, no font, no address outside the page: it looks the same without the internet, and a
strict Content-Security-Policy needs to allow only the inline style. Jinja escapes every text. The
page shows the Markdown that the contract's texts use: paragraphs, `## ` headings and code.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from catalog.contract.constants import OPENAPI_PATH

Node = Mapping[str, Any]
_CURL_PARAMETERS_MAX = 3


def document_routes(make_document: Callable[[], Node], base_path: str) -> tuple[Route, ...]:
    """Return the routes of the document and its page, which are made once, when requested."""

    @cache
    def document() -> Node:
        return {**make_document(), "servers": [{"url": base_path or "/"}]}

    encoded = cache(lambda: msgspec.json.encode(document()))
    page = cache(lambda: render_docs(document()).encode())

    def get_document(request: Request) -> Response:
        return Response(encoded(), media_type="application/json")

    def get_page(request: Request) -> Response:
        # A policy under which the page loads nothing.
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
        return Response(page(), headers={"Content-Security-Policy": policy}, media_type="text/html")

    def redirect_to_page(request: Request) -> Response:
        return RedirectResponse(f"{base_path}/docs", status_code=307)

    return (
        Route(OPENAPI_PATH, get_document, name="openapi"),
        Route("/docs", get_page, name="docs"),
        Route("/", redirect_to_page, name="root"),
    )


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
