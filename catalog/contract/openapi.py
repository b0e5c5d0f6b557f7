"""The interface as an OpenAPI 3.0 document, made from the records, parameters, errors and plans.

`x-plans` of the document is the table of plans. `x-plans` of an operation, a parameter or a value
says which plans may use it; `x-plans` of a field says what each plan shows. Where a plan has no
access, `x-least-plan` is the lowest plan with access. Longer texts are in `reference.md`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

from catalog.contract import constants, errors, parameters, records
from catalog.contract.errors import ERRORS, ApiError
from catalog.contract.parameters import IF_NONE_MATCH, Parameter
from catalog.contract.plans import LEAST_PLAN_FOR_FILTER, PLANS, ImpactView, Plan
from catalog.contract.records import Page

Node = dict[str, Any]
HeaderTexts = Mapping[str, tuple[str, object]]
SCHEMAS: Final = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Operation:
    """One route. `answer` is a record, or the media type of another body."""

    id: str
    path: str
    tag: str
    summary: str
    answer: Any
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[str, ...] = ("ETag", "Cache-Control")
    errors: tuple[type[ApiError], ...] = ()
    linked: tuple[str, str] | None = None
    """An operation that takes a field of the first row, and the field."""
    description: str = ""


_FILE: Final = ("ETag", "Cache-Control", "Last-Modified", "Content-Disposition")
_GONE: Final = (errors.NotFound, errors.EventCancelled)
_EXPORT: Final = (*parameters.EXPORT_PARAMETERS, parameters.IF_MODIFIED_SINCE)
# fmt: off
OPERATIONS: Final = (
    Operation("listCoins", constants.COINS_PATH, "Coins", "List coins", Page[records.Coin],
              parameters.COINS_PARAMETERS, linked=("getCoin", "slug"),
              description="Coins by market-cap rank, unranked ones last. Free has the top 100."),
    Operation("getCoin", constants.COINS_PATH + "/{slug}", "Coins", "Get one coin", records.Coin,
              (parameters.COIN_SLUG,), errors=(errors.NotFound,),
              description="One coin. On Free a coin outside the top 100 is answered with 403."),
    Operation("listEvents", constants.EVENTS_PATH, "Events", "List events", Page[records.Event],
              parameters.EVENTS_PARAMETERS, linked=("getEvent", "id")),
    Operation("getEvent", constants.EVENTS_PATH + "/{id}", "Events", "Get one event", records.Event,
              (parameters.EVENT_ID,), errors=_GONE),
    Operation("listCancellations", constants.CANCELLATIONS_PATH, "Events", "List cancelled events",
              Page[records.Cancellation], parameters.CANCELLATIONS_PARAMETERS),
    Operation("exportEvents", constants.EXPORT_PATH, "Events", "Export events as CSV", "text/csv",
              _EXPORT, _FILE),
    Operation("listCategories", constants.CATEGORIES_PATH, "Categories", "List categories",
              Page[records.Category], description="They rarely change; keep them for 24 hours."),
    Operation("getUsage", constants.USAGE_PATH, "Usage", "Get the key's usage", records.Usage,
              headers=("Cache-Control",)),
    Operation("getOpenApi", constants.OPENAPI_PATH, "Service", "This document", dict, headers=()),
    Operation("getDocs", "/docs", "Service", "The reference as a page", "text/html", headers=()),
    Operation("getHealth", "/healthz", "Service", "Get the state", records.ServiceHealth,
              headers=()),
    Operation("getMetrics", "/metrics", "Service", "Metrics of the server", "text/plain",
              headers=()),
)
# fmt: on
KNOWN_AT_SERVICE: Final = ("slug", "categories", "createdAt", "updatedAt")
"""Fields of an event that are null only in a mirror."""
_TAGS: Final = {
    "Coins": "The coins of the catalog, with counts of their upcoming events.",
    "Events": "Dated events, the cancelled ones, and the export of all of them.",
    "Categories": "The closed list of editorial categories.",
    "Usage": "The usage of a key in its month.",
    "Service": "About the service itself. No key is needed.",
}
_QUOTA: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_OPENAPI: Final = ("openapi", "info", "paths")
_VERSION: Final = ("Deprecation", "Sunset")
HEADERS: Final[HeaderTexts] = {
    "Cache-Control": ("How long the requester may keep the response.", "private, max-age=60"),
    "ETag": ("A tag of this response, for `If-None-Match`.", '"5f2b1c"'),
    "Date": ("The service's time.", "Thu, 01 Oct 2026 12:00:00 GMT"),
    "Last-Modified": ("When the snapshot was taken.", "Thu, 01 Oct 2026 00:05:00 GMT"),
    "Content-Disposition": ("The file name.", 'attachment; filename="events-2026-10-01.csv"'),
    "Retry-After": ("Seconds to wait before the next request.", 1),
    "X-RateLimit-Limit": ("Requests in the month's quota. Absent without one.", 300_000),
    "X-RateLimit-Remaining": ("Requests left this month. Absent without a quota.", 298_796),
    "X-RateLimit-Reset": ("When the quota starts again, UTC.", "2026-11-01T00:00:00Z"),
    "Deprecation": ("Since when the version is deprecated, if it is.", "@1798761600"),
    "Sunset": ("When a deprecated version ends.", "Sat, 01 Jan 2028 00:00:00 GMT"),
}
# fmt: off
EXAMPLE: Final = records.Event(
    id="evt_7c1e09", slug="harbour-upgrade", title="Harbour upgrade", description="Lower fees.",
    displayed_date="08 Oct", date=datetime(2026, 10, 8, tzinfo=UTC), date_end=None,
    date_type="date", is_estimated=False, categories=("Upgrade", "Mainnet"), impact=8.2,
    coins=(records.EventCoin(slug="bitcoin", symbol="btc", name="Bitcoin"),),
    created_at=datetime(2026, 9, 1, tzinfo=UTC), updated_at=datetime(2026, 9, 30, tzinfo=UTC),
)
# fmt: on


@cache
def openapi_document() -> Node:
    """Return the document of the service. It is shared: do not change it."""
    document = make_document(OPERATIONS)
    for name in ("Event", "CancelledEvent"):
        for field in KNOWN_AT_SERVICE:
            del document["components"]["schemas"][name]["properties"][field]["nullable"]
    return document


def make_document(
    operations: Sequence[Operation],
    about: Sequence[str] = (),
    *,
    known_errors: Sequence[type[ApiError]] = ERRORS,
    headers: HeaderTexts = HEADERS,
) -> Node:
    """Return a document with the headers that a server can send, and its errors."""
    texts = _read_texts()
    answers = [each.answer for each in operations if each.answer not in _NO_RECORDS]
    rows = [row for answer in answers for row in get_args(answer)]
    schemas = _make_schemas([*dict.fromkeys((*answers, *rows, *_OTHERS))])
    codes: dict[str, Node] = {}
    for error in known_errors:
        about_code = codes.setdefault(error.code, {"status": error.status, "when": ""})
        about_code["when"] = f"{about_code['when']} {error.when}".strip()
    schemas["Error"]["properties"]["code"] |= {"enum": list(codes), "x-codes": codes}
    schemas["DayOrInstant"] = {
        "type": "string",
        "description": "A day, which starts at 00:00 UTC, or a time of a day in UTC.",
        "pattern": parameters.DAY_OR_INSTANT,
    }
    statuses = sorted({error.status for error in known_errors})
    webhook = {
        "operationId": "receiveDelivery",
        "summary": "Receive an event",
        "description": texts["receiveDelivery"],
        "x-code-sample": texts["verifySignature"] + "\n",
        "requestBody": {"required": True, "content": _content(records.Delivery)},
        "responses": {"2XX": {"description": "Accepted."}, "410": {"description": "Gone."}},
        **_access(lambda plan: plan.webhooks),
    }
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Crypto event catalog",
            "version": "2.0",
            "description": "\n\n".join((*about, texts["about"])),
        },
        "servers": [{"url": "/"}],
        "security": [{"apiKey": []}, {"bearer": []}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {
            each.path: {"get": _describe(each, statuses, headers, texts)} for each in operations
        },
        "x-webhooks": {"delivery": {"post": webhook}},
        "x-plans": {plan.name: _plan_row(plan) for plan in PLANS.values()},
        "components": {
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": constants.KEY_HEADER},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "headers": {name: _header(name, *about) for name, about in headers.items()},
            "responses": {
                f"Error{status}": _error([e for e in known_errors if e.status == status], headers)
                for status in statuses
            },
            "schemas": schemas,
        },
    }


def _read_texts() -> dict[str, str]:
    """Return the sections of `reference.md` with the values of the constants in them."""
    text = files("catalog.contract").joinpath("reference.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^# (\w+)\n", text, flags=re.MULTILINE)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: section.strip().format_map(vars(constants)) for name, section in pairs}


def _describe(
    operation: Operation, known: Sequence[int], headers: HeaderTexts, texts: Mapping[str, str]
) -> Node:
    is_open, is_tagged = operation.tag == "Service", "ETag" in operation.headers
    asked = (*operation.parameters, *([IF_NONE_MATCH] if is_tagged else []))
    shared = ("Date", *_VERSION) if is_open else ("Date", *_VERSION, *_QUOTA)
    found: Node = {
        "description": "The answer.",
        "headers": _refer((*operation.headers, *shared), headers),
        "content": _content(operation.answer),
    }
    if operation.linked is not None:
        target, name = operation.linked
        link = {"operationId": target, "parameters": {name: f"$response.body#/data/0/{name}"}}
        found["links"] = {"first": link}
    answers: Node = {"200": found}
    if is_tagged:
        unchanged = "The client's copy is still valid; there is no body."
        answers["304"] = {"description": unchanged, "headers": found["headers"]}
    statuses = {414, 431, 500, 503, *(error.status for error in operation.errors)}
    statuses |= {400} if any(each.place == "query" for each in asked) else set()
    statuses |= set() if is_open else {403, 429}
    for status in sorted(statuses.intersection(known)):
        answers[str(status)] = {"$ref": f"#/components/responses/Error{status}"}
    is_export = operation.path == constants.EXPORT_PATH
    return {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": texts.get(operation.id, operation.description or operation.summary),
        "parameters": [_describe_parameter(each) for each in asked],
        "responses": answers,
        **({"security": []} if is_open else _access(lambda plan: plan.export or not is_export)),
    }


def _content(answer: Any) -> Node:
    if answer is dict:
        return {"application/json": {"schema": {"type": "object", "required": _OPENAPI}}}
    if not isinstance(answer, str):
        return {"application/json": {"schema": {"$ref": SCHEMAS + _name_schema(answer)}}}
    content: Node = {"schema": {"type": "string"}}
    if answer == "text/csv":
        content["example"] = (records.HEADER + records.encode_rows([EXAMPLE])).decode()
    return {answer: content}


def _refer(names: Iterable[str], headers: HeaderTexts) -> Node:
    return {n: {"$ref": f"#/components/headers/{n}"} for n in names if n in headers}


def _header(name: str, description: str, example: object) -> Node:
    schema = {"type": "integer", "minimum": 0} if isinstance(example, int) else {"type": "string"}
    required = {} if name in (*_QUOTA, *_VERSION, "X-As-Of") else {"required": True}
    return {"description": description, **required, "schema": schema, "example": example}


def _describe_parameter(parameter: Parameter) -> Node:
    found: Node = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": parameter.schema,
    }
    found |= {"required": True} if parameter.place == "path" else {}
    found |= {} if parameter.example is None else {"example": parameter.example}
    for filter_name, least in LEAST_PLAN_FOR_FILTER.items():
        name, _, value = filter_name.partition("=")
        if name == parameter.name:
            access = _access(partial(Plan.is_at_least, other=least))
            found |= {f"{k}-of-value": {value: v} for k, v in access.items()} if value else access
    return found


def _error(meant: Sequence[type[ApiError]], headers: HeaderTexts) -> Node:
    status, content = meant[0].status, _content(meant[0].form)
    shown = () if status in (414, 422, 431, 503) else (*_QUOTA, "X-As-Of")
    waited = ("Retry-After",) if status == 429 else ()
    beside = {"id": EXAMPLE.id, "cancelledAt": "2026-09-20T08:30:00Z"} if status == 410 else None
    content["application/json"]["examples"] = {
        error.code: {"value": msgspec.json.decode(error(beside=beside).body("req_5f0c3a9d"))}
        for error in meant
    }
    text = " ".join(error.when for error in meant)
    return {"description": text, "headers": _refer((*shown, *waited), headers), "content": content}


def _name_schema(record: Any) -> str:
    return f"{record.__args__[0].__name__}Page" if get_origin(record) else str(record.__name__)


_NO_RECORDS: Final = (dict, "text/csv", "text/html", "text/plain")
_OTHERS: Final = (
    *(records.EventCoin, records.CancelledEvent, records.Delivery, records.PaginationMeta),
    *(records.Period, errors.Error, errors.ErrorBody, errors.CancelledBody),
)


def _make_schemas(answers: Sequence[Any]) -> Node:
    """Return the schemas of records and of what they contain."""
    found = msgspec.json.schema_components(answers, ref_template=SCHEMAS + "{name}")[1]
    text = re.sub(r"Page_(\w+?)_", r"\1Page", msgspec.json.encode(found).decode())
    schemas: Node = {name: _to_3_0(each) for name, each in msgspec.json.decode(text).items()}
    for record in answers:
        hints = get_type_hints(get_origin(record) or record, include_extras=True)
        fields = schemas[_name_schema(record)]["properties"]
        for field in structs.fields(record):
            *_, about = getattr(hints[field.name], "__metadata__", (None,))
            if isinstance(about, str):
                fields[field.encode_name]["description"] = about
    for name in ("Event", "CancelledEvent"):
        for field_name, schema in schemas[name]["properties"].items():
            if field_name != "cancelledAt":
                schema |= _access(partial(_shown_form, field_name))
    for name in ("majorCount", "peakImpact"):
        counters = _access(lambda plan: "value" if plan.score_counters else "null")
        schemas["Coin"]["properties"][name] |= counters
    schemas["Event"]["example"] = msgspec.to_builtins(EXAMPLE)
    pushed = [{"$ref": SCHEMAS + name} for name in ("Event", "CancelledEvent")]
    schemas["Delivery"]["properties"]["data"] = {"oneOf": pushed}
    return schemas


def _to_3_0(schema: Node) -> Node:
    """Return a schema of JSON Schema 2020-12 in the terms of OpenAPI 3.0."""
    schema = {key: schema[key] for key in schema if key not in ("title", "default")}
    if "items" in schema:
        schema["items"] = _to_3_0(schema["items"])
    if "properties" in schema:
        fields = schema["properties"]
        required = {*schema["required"], *(n for n in fields if "default" in fields[n])}
        schema["required"] = [name for name in fields if name in required]
        schema["properties"] = {name: _to_3_0(each) for name, each in fields.items()}
        schema["additionalProperties"] = False
    if (choices := schema.pop("anyOf", None)) is not None:
        kinds = [_to_3_0(each) for each in choices if each != {"type": "null"}]
        if len(kinds) < len(choices) and "$ref" in kinds[0]:
            kinds.append({"type": "object", "nullable": True, "enum": [None]})
        elif len(kinds) < len(choices):
            kinds[0]["nullable"] = True
        schema |= {"oneOf": kinds} if len(kinds) > 1 else kinds[0]
    return schema


def _access(shown: Callable[[Plan], object]) -> Node:
    """Return what each plan may use or sees, and the lowest plan with access if some have none."""
    found = {plan.name: shown(plan) for plan in PLANS.values()}
    has_access = [name for name, form in found.items() if form not in (False, "null", "absent")]
    is_gated = len(has_access) < len(found)
    return {"x-plans": found, **({"x-least-plan": has_access[0]} if is_gated else {})}


def _shown_form(name: str, plan: Plan) -> str:
    """Return `value`, `band`, `null`, or `absent` where the key itself is left out."""
    if plan.shows(name):
        return "band" if name == "impact" and plan.impact is ImpactView.BANDED else "value"
    return "absent" if name == "categories" else "null"


_NOT_IN_TABLE: Final = ("name", "rank", "event_fields")


def _plan_row(plan: Plan) -> Node:
    """Return a plan's row of the tables 8.1 and 8.3; null means without a bound."""
    row = {name: each for name, each in asdict(plan).items() if name not in _NOT_IN_TABLE}
    row["export_interval_s"] = constants.EXPORT_INTERVAL_S if plan.export else None
    return {re.sub("_(.)", lambda m: m[1].upper(), name): each for name, each in row.items()}
