"""The OpenAPI document of a mirror: the interface's, and its extensions.

A mirror has no quota and no rate: the document has neither their headers nor their errors.
"""

from dataclasses import replace
from functools import cache
from typing import Any, Final

from application.web.mirror.as_of import AsOfOutOfRange
from application.web.mirror.history_routes import CHANGES_PATH, HISTORY_PATH
from application.web.mirror.history_routes import ChangeRecord as Change
from application.web.mirror.history_routes import KnownVersion as Version
from catalog.contract import parameters
from catalog.contract.errors import ERRORS, NotFound, RateLimited
from catalog.contract.openapi import HEADERS, OPERATIONS, Node, Operation, make_document
from catalog.contract.records import Page

_ABOUT: Final = """\
## This mirror

A mirror serves this interface from your own warehouse, without a quota, a rate limit or a lag. A
plan decides only which fields and dates are shown. A field that the warehouse does not know is
null; the slug stands for an empty `symbol` or `iconUrl`. `impact` is a band if no score is known.
`categories` and the coins of an event are sorted.

Extensions are marked with `x-extension`. `as_of`, or the header `X-As-Of`, asks for the answer that
a client with this warehouse could have had at a past time; before the first pull, or in the future,
it is 422. A misspelt `as_of` is 400. Name and icon of a coin are always the current ones."""
_VIRTUAL: Final = "This is a replay. `Date`, and windows such as today, follow its virtual clock."
_LOOPBACK: Final = "A request needs no key, because the mirror listens on loopback."
_HISTORY: Final = "Extension: the versions of an event, oldest first, also if it was cancelled."
_CHANGES: Final = """\
Extension: versions of events in the order in which they became known. `meta.cursor` is never null:
at the end, the same request later returns what was published since."""
_PUBLICATION: Final = "Extension: the publication that a mirror serves, and why not a newer one."
_EXTENSIONS: Final = (
    Operation("getEventHistory", HISTORY_PATH, "Events", "Get the history of an event",
              Page[Version], (parameters.EVENT_ID,), errors=(NotFound,), description=_HISTORY),
    Operation("listChanges", CHANGES_PATH, "Events", "List changes",
              Page[Change], parameters.CHANGES_PARAMETERS, ("Cache-Control",),
              description=_CHANGES),
)  # fmt: skip
_ERRORS: Final = (*(e for e in ERRORS if not issubclass(e, RateLimited)), AsOfOutOfRange)
_NOT_SENT: Final = ("X-RateLimit-", "Retry-After", "Deprecation", "Sunset")
_HEADERS: Final = {
    **{name: HEADERS[name] for name in HEADERS if not name.startswith(_NOT_SENT)},
    "X-As-Of": ("Extension: the time that was named.", "2026-10-01T12:00:00Z"),
}


@cache
def mirror_document(needs_key: bool, clock_moves: bool) -> Node:
    """Return the OpenAPI document of a mirror. It is shared: do not change it.

    The clock of a replay moves.
    """
    said = {_ABOUT: True, _VIRTUAL: clock_moves, _LOOPBACK: not needs_key}
    about = [text for text, is_true in said.items() if is_true]
    operations = [_with_as_of(each) for each in (*OPERATIONS, *_EXTENSIONS)]
    document = make_document(operations, about, known_errors=_ERRORS, headers=_HEADERS)
    document["security"] = [*([] if needs_key else [{}]), *document["security"]]
    schemas = document["components"]["schemas"]
    # A coin without an icon has its slug.
    del schemas["Coin"]["properties"]["iconUrl"]["format"]
    publication = {"type": "object", "additionalProperties": True, "description": _PUBLICATION}
    schemas["ServiceHealth"]["properties"]["publication"] = publication
    _mark_extensions(document)
    return document


def _with_as_of(operation: Operation) -> Operation:
    if operation.tag == "Service":
        return operation
    asked = (*operation.parameters, parameters.AS_OF, parameters.AS_OF_HEADER)
    sent, errors = (*operation.headers, "X-As-Of"), (*operation.errors, AsOfOutOfRange)
    return replace(operation, parameters=asked, headers=sent, errors=errors)


def _mark_extensions(node: Any) -> None:
    if isinstance(node, dict) and str(node.get("description")).startswith("Extension: "):
        node["x-extension"] = True
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _mark_extensions(each)
