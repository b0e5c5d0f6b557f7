"""The document and the code agree, in both directions: a change to only one fails here."""

import csv
import io
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from openapi_spec_validator import OpenAPIV30SpecValidator

from catalog.contract import constants, parameters, records
from catalog.contract.errors import InvalidParameter
from catalog.contract.openapi import openapi_document, openapi_json
from catalog.contract.plans import LEAST_PLAN_FOR_FILTER, PLANS, ImpactView
from catalog.contract.signatures import sign
from tests.contract.api_errors import ALL_ERRORS

Node = dict[str, Any]

DOCUMENT = openapi_document()
SCHEMAS: Node = DOCUMENT["components"]["schemas"]
OPERATIONS: dict[str, Node] = {
    path: path_item["get"] for path, path_item in DOCUMENT["paths"].items()
}

RECORDS: dict[str, type[records.Record]] = {
    **{
        record.__name__: record
        for record in (
            *(records.Coin, records.EventCoin, records.Event, records.CancelledEvent),
            *(records.Cancellation, records.Category, records.Period, records.Usage),
            *(records.PaginationMeta, records.Delivery),
        )
    },
    "CoinPage": records.Page[records.Coin],
    "EventPage": records.Page[records.Event],
    "CancellationPage": records.Page[records.Cancellation],
    "CategoryPage": records.Page[records.Category],
}
"""The record behind each schema; the other schemas are listed in `OTHER_SCHEMAS`."""

OTHER_SCHEMAS = {"ErrorCode", "Error", "ErrorBody", "Health", "OpenApiDocument", "DayOrInstant"}

READERS = {
    constants.COINS_PATH: (parameters.read_coins_request, parameters.COINS_PARAMETERS),
    constants.EVENTS_PATH: (parameters.read_events_request, parameters.EVENTS_PARAMETERS),
    constants.CANCELLATIONS_PATH: (
        parameters.read_cancellations_request,
        parameters.CANCELLATIONS_PARAMETERS,
    ),
    constants.EXPORT_PATH: (parameters.read_export_request, parameters.EXPORT_PARAMETERS),
}
OPEN_PATHS = {constants.OPENAPI_PATH, "/docs", "/healthz", "/metrics"}


def resolved(node: Node) -> Node:
    if "$ref" not in node:
        return node
    found: Any = DOCUMENT
    for step in node["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def dereferenced(node: Any) -> Any:
    """Return the node with every reference resolved, for a validator without the document."""
    if isinstance(node, dict):
        if "$ref" in node:
            return dereferenced(resolved(node))
        return {key: dereferenced(value) for key, value in node.items()}
    if isinstance(node, list):
        return [dereferenced(value) for value in node]
    return node


def validator(schema: Node) -> OAS30Validator:
    return OAS30Validator(dereferenced(schema), format_checker=oas30_format_checker)


def nodes(node: Any, where: str = "#") -> Iterator[tuple[str, Node]]:
    """Yield every mapping of the document with its place."""
    if isinstance(node, dict):
        yield where, node
        for key, value in node.items():
            yield from nodes(value, f"{where}/{key}")
    elif isinstance(node, list):
        for position, value in enumerate(node):
            yield from nodes(value, f"{where}/{position}")


def properties() -> Iterator[tuple[str, Node]]:
    for where, node in nodes(DOCUMENT):
        if "properties" in node and "/example" not in where:
            for name, schema in node["properties"].items():
                yield f"{where}/{name}", schema


def query_parameters(path: str) -> dict[str, Node]:
    found = map(resolved, OPERATIONS[path].get("parameters", []))
    return {each["name"]: each for each in found if each["in"] == "query"}


QUERY_PARAMETERS = [(path, name) for path in READERS for name in sorted(query_parameters(path))]


def least_plan(has_it: Any) -> str:
    return next(plan.name for plan in PLANS.values() if has_it(plan))


# The document itself


def test_the_document_is_valid_openapi_3_0() -> None:
    assert DOCUMENT["openapi"] == "3.0.3"
    OpenAPIV30SpecValidator(DOCUMENT).validate()


def test_the_json_is_the_document() -> None:
    assert msgspec.json.decode(openapi_json()) == DOCUMENT


def test_yaml_reads_no_instant_as_a_timestamp_and_no_key_without_a_value() -> None:
    for where, node in nodes(DOCUMENT):
        for key, value in node.items():
            assert isinstance(key, str), where
            allowed = (str, int, float, bool, list, dict)
            may_be_null = "/example" in where or "/x-plans" in where
            assert isinstance(value, allowed) or (value is None and may_be_null), f"{where}/{key}"


def test_no_key_is_written_twice() -> None:
    text = files("catalog.contract").joinpath("openapi.yaml").read_text(encoding="utf-8")
    waiting = [yaml.compose(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            assert len(keys) == len(set(keys)), f"{node.start_mark}: {keys}"
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def test_every_reference_resolves_also_in_extensions() -> None:
    for where, node in nodes(DOCUMENT):
        if "$ref" in node:
            assert set(node) == {"$ref"}, f"{where}: 3.0 ignores what stands beside $ref"
            assert resolved(node), where


def test_every_component_is_used() -> None:
    used = {node["$ref"] for _, node in nodes(DOCUMENT) if "$ref" in node}
    for kind in ("schemas", "parameters", "headers", "responses"):
        for name in DOCUMENT["components"][kind]:
            assert f"#/components/{kind}/{name}" in used, name


@pytest.mark.parametrize(("where", "schema"), list(properties()))
def test_every_property_has_a_type_and_a_description(where: str, schema: Node) -> None:
    schema = resolved(schema)
    choices = schema.get("oneOf", [schema])
    assert all("type" in resolved(choice) for choice in choices), where
    assert schema["description"].strip(), where


def test_every_array_has_a_type_of_its_items() -> None:
    for where, node in nodes(DOCUMENT):
        if node.get("type") == "array":
            assert "type" in resolved(node["items"]), where


def test_every_object_with_properties_lists_what_is_required() -> None:
    for where, node in nodes(DOCUMENT):
        if "properties" in node and "/example" not in where:
            assert node["type"] == "object", where
            assert node["required"], where
            assert set(node["required"]) <= set(node["properties"]), where
            assert "additionalProperties" in node, where


def test_nullable_is_only_beside_a_type() -> None:
    """OpenAPI 3.0.3 gives it no meaning anywhere else."""
    for where, node in nodes(DOCUMENT):
        if "nullable" in node and "/example" not in where:
            assert "type" in node, where


def test_every_operation_has_its_own_id_a_summary_and_a_known_tag() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert len(set(ids)) == len(ids)
    for path, operation in OPERATIONS.items():
        assert operation["summary"] and operation["description"], path
        assert len(operation["tags"]) == 1 and set(operation["tags"]) <= tags, path


# Paths, keys and statuses


def test_paths_are_those_of_the_decisions() -> None:
    assert set(OPERATIONS) == {
        constants.COINS_PATH,
        constants.COINS_PATH + "/{slug}",
        constants.EVENTS_PATH,
        constants.EVENTS_PATH + "/{id}",
        constants.CANCELLATIONS_PATH,
        constants.EXPORT_PATH,
        constants.CATEGORIES_PATH,
        constants.USAGE_PATH,
        *OPEN_PATHS,
    }


def test_either_form_of_the_key_opens_all_paths_but_the_open_ones() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert DOCUMENT["security"] == [{name: []} for name in schemes]
    assert schemes["apiKey"]["name"] == constants.KEY_HEADER
    assert schemes["bearer"]["scheme"] == "bearer"
    assert {path for path, each in OPERATIONS.items() if each.get("security") == []} == OPEN_PATHS


@pytest.mark.parametrize("path", OPERATIONS)
def test_statuses_depend_on_what_a_route_does(path: str) -> None:
    operation = OPERATIONS[path]
    names = {resolved(each)["name"] for each in operation.get("parameters", [])}
    expected = {"200", "414", "431", "500", "503"}
    if path not in OPEN_PATHS:
        expected |= {"403", "429"}
    if path in READERS:
        expected.add("400")
    if "{" in path:
        expected.add("404")
    if path == constants.EVENTS_PATH + "/{id}":
        expected.add("410")
    if "If-None-Match" in names:
        expected.add("304")
    assert set(operation["responses"]) == expected


def test_error_codes_and_statuses_are_those_of_the_errors() -> None:
    code = SCHEMAS["ErrorCode"]
    assert code["enum"] == list(dict.fromkeys(error.code for error in ALL_ERRORS))
    statuses = {name: about["status"] for name, about in code["x-codes"].items()}
    assert statuses == {error.code: error.status for error in ALL_ERRORS}
    assert all(set(about) == {"status", "when"} for about in code["x-codes"].values())


def test_every_error_answer_is_an_error_body_with_an_example_per_code() -> None:
    answers = {
        (status, code)
        for operation in OPERATIONS.values()
        for status, reference in operation["responses"].items()
        if status >= "400"
        for code in resolved(reference)["content"]["application/json"]["examples"]
    }
    # 405 answers no GET, and V1 has no path here.
    silent = {"method_not_allowed", "version_retired"}
    assert answers == {(str(e.status), e.code) for e in ALL_ERRORS if e.code not in silent}
    for name, response in DOCUMENT["components"]["responses"].items():
        for media in response.get("content", {}).values():
            assert "ErrorBody" in str(media["schema"]), name


def test_examples_of_errors_have_the_code_and_the_message_of_the_error() -> None:
    errors = {error.code: error for error in reversed(ALL_ERRORS)}
    for response in DOCUMENT["components"]["responses"].values():
        for media in response.get("content", {}).values():
            for code, example in media["examples"].items():
                body = example["value"]
                error = errors[code](body["message"])
                sent = msgspec.json.decode(error.body(body["error"]["requestId"]))
                assert sent.items() <= body.items()
                if code != "invalid_request":
                    assert body["message"] == error.default_message


def test_error_body_of_every_error_fits_the_schema() -> None:
    for error in ALL_ERRORS:
        body = msgspec.json.decode(error().body("req_1"))
        validator(SCHEMAS["ErrorBody"]).validate(body)


# Records


NULL_IN_A_MIRROR = {"slug", "categories", "createdAt", "updatedAt"}
"""Fields of an event that a warehouse may not know; the service knows them."""


def wire_type(found: inspect.Type) -> dict[str, object]:
    """Return the type, format and nullability that the document should have."""
    if isinstance(found, inspect.UnionType):
        kinds = [each for each in found.types if not isinstance(each, inspect.NoneType)]
        parts = [wire_type(each) for each in kinds]
        nullable = len(kinds) < len(found.types)
        if len(parts) == 1:
            return {**parts[0], "nullable": nullable}
        return {"oneOf": {str(part["type"]) for part in parts}, "nullable": nullable}
    if isinstance(found, inspect.VarTupleType):
        return {"type": "array", "items": wire_type(found.item_type), "nullable": False}
    if isinstance(found, inspect.StructType):
        return {"record": found.cls.__name__, "nullable": False}
    if isinstance(found, inspect.DateTimeType):
        return {"type": "string", "format": "date-time", "nullable": False}
    names: dict[type[inspect.Type], str] = {
        inspect.StrType: "string",
        inspect.BoolType: "boolean",
        inspect.IntType: "integer",
        inspect.FloatType: "number",
    }
    return {"type": names[type(found)], "nullable": False}


def documented_type(schema: Node) -> dict[str, object]:
    if "$ref" in schema:
        return {"record": schema["$ref"].rpartition("/")[2], "nullable": False}
    if choices := schema.get("oneOf"):
        if all("$ref" in choice for choice in choices):
            return documented_type(choices[0])
        return {
            "oneOf": {choice["type"] for choice in choices},
            "nullable": any(choice.get("nullable") for choice in choices),
        }
    found: dict[str, object] = {"type": schema["type"], "nullable": schema.get("nullable", False)}
    if schema["type"] == "array":
        found["items"] = documented_type(schema["items"])
    if schema.get("format") == "date-time":
        found["format"] = "date-time"
    return found


def struct_fields(record: type[records.Record]) -> dict[str, inspect.Field]:
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field for field in info.fields}


def test_every_schema_is_a_record_or_a_known_other() -> None:
    assert set(SCHEMAS) == set(RECORDS) | OTHER_SCHEMAS


@pytest.mark.parametrize("name", RECORDS)
def test_schema_has_the_fields_and_types_of_the_record(name: str) -> None:
    fields = struct_fields(RECORDS[name])
    schema = SCHEMAS[name]
    not_null = NULL_IN_A_MIRROR if name in ("Event", "CancelledEvent") else set()
    assert {key: documented_type(each) for key, each in schema["properties"].items()} == {
        key: wire_type(field.type) | ({"nullable": False} if key in not_null else {})
        for key, field in fields.items()
    }
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", RECORDS)
def test_all_fields_are_required_but_those_that_can_be_unset(name: str) -> None:
    may_be_left_out = {
        field.encode_name
        for field in msgspec.structs.fields(RECORDS[name])
        if field.default is msgspec.UNSET
    }
    schema = SCHEMAS[name]
    assert set(schema["required"]) == set(schema["properties"]) - may_be_left_out


@pytest.mark.parametrize("name", RECORDS)
def test_example_of_a_record_decodes_and_encodes_to_itself(name: str) -> None:
    example = SCHEMAS[name]["example"]
    record = msgspec.convert(example, RECORDS[name])
    assert msgspec.json.decode(msgspec.json.encode(record)) == example
    assert list(example) == list(struct_fields(RECORDS[name]))


def test_every_instant_of_a_record_has_the_form_of_the_interface() -> None:
    instants = [(w, s) for w, s in properties() if s.get("format") == "date-time"]
    text = records.instant_text(datetime(2026, 10, 8, tzinfo=UTC))
    assert instants
    for where, schema in instants:
        assert re.search(schema["pattern"], text), where
        assert not re.search(schema["pattern"], text.replace("Z", ".5Z")), where


def test_closed_lists_of_values_are_those_of_the_code() -> None:
    event = SCHEMAS["Event"]["properties"]
    assert event["dateType"]["enum"] == ["date", "month", "quarter", "year"]
    score, band = event["impact"]["oneOf"]
    assert band["enum"] == [name for _, name in constants.IMPACT_BANDS]
    assert (score["minimum"], score["maximum"]) == (constants.IMPACT_MIN, constants.IMPACT_MAX)
    assert SCHEMAS["Usage"]["properties"]["plan"]["enum"] == list(PLANS)
    delivery = SCHEMAS["Delivery"]["properties"]
    assert delivery["type"]["enum"] == list(constants.WEBHOOK_KINDS)
    assert delivery["apiVersion"]["enum"] == [constants.WEBHOOK_API_VERSION]


def test_bands_and_the_major_score_are_described_with_their_edges() -> None:
    described = SCHEMAS["Event"]["properties"]["impact"]["description"]
    for edge, name in constants.IMPACT_BANDS[:-1]:
        assert re.search(rf"{name}( is)? under {edge:g}\b", described)
    major = SCHEMAS["Coin"]["properties"]["majorCount"]["description"]
    assert f"{constants.IMPACT_MAJOR:g} or more" in major


def test_each_event_field_names_the_least_plan_that_shows_it() -> None:
    for name, schema in SCHEMAS["Event"]["properties"].items():
        least = least_plan(lambda plan, name=name: plan.shows(name))
        assert schema["x-least-plan"] == least, name
        if least != "free":
            assert least.capitalize() in schema["description"], name


def test_scored_counters_of_a_coin_name_the_least_plan_with_a_score() -> None:
    least = least_plan(lambda plan: plan.impact is not ImpactView.NONE)
    gated = {n: s for n, s in SCHEMAS["Coin"]["properties"].items() if "x-least-plan" in s}
    assert set(gated) == {"majorCount", "peakImpact"}
    assert {schema["x-least-plan"] for schema in gated.values()} == {least}


@pytest.mark.parametrize("hidden", [None, "Low", "Critical", 0, 10, 7.25])
def test_impact_admits_null_a_band_or_a_score(hidden: object) -> None:
    event = {**SCHEMAS["Event"]["example"], "impact": hidden}
    validator(SCHEMAS["Event"]).validate(event)


@pytest.mark.parametrize("wrong", ["low", "7.5", -0.1, 10.1, True, []])
def test_impact_admits_nothing_else(wrong: object) -> None:
    event = {**SCHEMAS["Event"]["example"], "impact": wrong}
    assert not validator(SCHEMAS["Event"]).is_valid(event)


def test_an_event_of_the_free_plan_fits_without_categories() -> None:
    free = PLANS["free"]
    shown = {
        name: value if free.shows(name) else None
        for name, value in SCHEMAS["Event"]["example"].items()
        if name != "categories"
    }
    validator(SCHEMAS["Event"]).validate(shown)


# Parameters


@pytest.mark.parametrize("path", OPERATIONS)
def test_query_parameters_are_those_that_the_code_reads(path: str) -> None:
    known = READERS[path][1] if path in READERS else frozenset()
    assert set(query_parameters(path)) == known


def test_no_query_parameter_is_required() -> None:
    for path, name in QUERY_PARAMETERS:
        assert not query_parameters(path)[name].get("required", False)


def test_filters_name_the_least_plan_that_may_use_them() -> None:
    found: dict[str, str] = {}
    for name, each in query_parameters(constants.EVENTS_PATH).items():
        if "x-least-plan" in each:
            found[name] = each["x-least-plan"]
        for value, least in each.get("x-least-plan-of-value", {}).items():
            found[f"{name}={value}"] = least
    assert found == {name: plan.name for name, plan in LEAST_PLAN_FOR_FILTER.items()}


def test_the_export_names_the_least_plan_that_has_it() -> None:
    operation = OPERATIONS[constants.EXPORT_PATH]
    assert operation["x-least-plan"] == least_plan(lambda plan: plan.export)


@pytest.mark.parametrize(("path", "name"), QUERY_PARAMETERS)
def test_defaults_are_those_of_the_code(path: str, name: str) -> None:
    field = {"sortBy": "sort_by"}.get(name, name)
    schema = resolved(query_parameters(path)[name]["schema"])
    taken = getattr(READERS[path][0](""), field, None)
    assert schema.get("default") == taken


SEARCH_TEXTS = ["", "a", "é" * 200, "é" * 201]
NAME_LISTS = [
    *("", ",", "a", "a,", ",a", "a,,b", "a\nb", "a,b\n", "A B,é"),
    *(",".join(map(str, range(100))), ",".join(map(str, range(101))), ",".join("a" * 101)),
]
DAYS_AND_INSTANTS = [
    *("2026-02-28", "2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29", "0400-02-29"),
    *("0000-01-01", "0001-01-01", "9999-12-31", "2026-04-31", "2026-13-01", "2026-00-10"),
    *("2026-1-1", "20260101", "2026-10-08T00:00:00Z", "2026-10-08T23:59:59.999999999Z"),
    *("2026-10-08T24:00:00Z", "2026-10-08T00:00:60Z", "2026-10-08T00:00:00"),
    *("2026-10-08T00:00:00+00:00", "2026-10-08T00:00:00-00:00", "2026-10-08T00:00:00.Z"),
    *("2026-10-08T00:00:00+01:00", "2026-10-08 00:00:00Z", "2026-10-08t00:00:00z", ""),
    *("2026-10-08T00:00:00.1234567890Z", "2026-10-08\n", "٢026-10-08", "today"),
]
PROBES = {
    "limit": ["0", "1", "100", "101", "200", "201", "-1", "1.5", "x", "", "1e2", " 1", "١"],
    "tracked": ["true", "false", "True", "1", "yes", ""],
    "impactMin": ["0", "10", "10.0001", "-0.0001", "7.5", "1e-05", "5e-324", "nan", "inf", "x", ""],
    "sortBy": ["date_asc", "impact_desc", "date_desc", ""],
    "cursor": ["", "a", "a" * 1_024, "a" * 1_025],
    "q": SEARCH_TEXTS,
    "keyword": SEARCH_TEXTS,
    "coins": NAME_LISTS,
    "categories": NAME_LISTS,
    "from": DAYS_AND_INSTANTS,
    "to": DAYS_AND_INSTANTS,
    "since": DAYS_AND_INSTANTS,
}


def as_sent(text: str, schema: Node) -> object:
    """Return the value of a query text, or the text if it has no value."""
    kind = schema["type"]
    if kind == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if kind in ("integer", "number") and not text.startswith(" "):
        try:
            return msgspec.json.decode(text, type=int if kind == "integer" else float)
        except msgspec.DecodeError:
            return text
    return text


def schema_admits(path: str, name: str, text: str) -> bool:
    schema = dereferenced(query_parameters(path)[name]["schema"])
    # Python's `$` also matches before a last line feed; the document's does not.
    if "pattern" in schema:
        schema = {**schema, "pattern": schema["pattern"].removesuffix("$") + r"\Z"}
    return validator(schema).is_valid(as_sent(text, schema))


def code_admits(path: str, name: str, text: str) -> bool:
    try:
        READERS[path][0](urlencode({name: text}))
    except InvalidParameter:
        return False
    return True


@pytest.mark.parametrize(("path", "name"), QUERY_PARAMETERS)
def test_schema_admits_exactly_what_the_code_admits(path: str, name: str) -> None:
    for text in PROBES[name]:
        assert schema_admits(path, name, text) == code_admits(path, name, text), text


DAYS = st.dates().map(date.isoformat)
NEARLY_DAYS = st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", fullmatch=True)
NEARLY_INSTANTS = st.from_regex(
    r"20[0-9]{2}-0[0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,10})?(Z|[+-]00:0[01])",
    fullmatch=True,
)


@given(text=DAYS | NEARLY_DAYS | NEARLY_INSTANTS)
def test_day_or_instant_admits_exactly_the_calendar(text: str) -> None:
    path = constants.CANCELLATIONS_PATH
    assert schema_admits(path, "since", text) == code_admits(path, "since", text)


def test_day_or_instant_admits_every_day_of_four_centuries() -> None:
    pattern = re.compile(SCHEMAS["DayOrInstant"]["pattern"])
    days = (date(1896, 1, 1) + timedelta(days=n) for n in range(400 * 366))
    assert all(pattern.search(day.isoformat()) for day in days)


def test_bounds_are_those_of_the_decisions() -> None:
    coins, events = (query_parameters(p) for p in (constants.COINS_PATH, constants.EVENTS_PATH))
    cancellations = query_parameters(constants.CANCELLATIONS_PATH)
    assert coins["limit"]["schema"]["maximum"] == constants.COINS_LIMIT_MAX
    for each in (events, cancellations):
        assert each["limit"]["schema"]["maximum"] == constants.EVENTS_LIMIT_MAX
    for each in (coins, events, cancellations):
        assert each["limit"]["schema"]["default"] == constants.LIMIT_DEFAULT
    assert coins["q"]["schema"]["maxLength"] == constants.KEYWORD_LENGTH_MAX
    assert events["keyword"]["schema"]["maxLength"] == constants.KEYWORD_LENGTH_MAX
    assert events["impactMin"]["schema"]["minimum"] == constants.IMPACT_MIN
    assert events["impactMin"]["schema"]["maximum"] == constants.IMPACT_MAX
    assert events["sortBy"]["schema"]["enum"] == list(parameters.SORT_BY)
    for name, count in (
        ("coins", constants.COIN_SLUGS_MAX),
        ("categories", constants.CATEGORY_IDS_MAX),
    ):
        pattern = events[name]["schema"]["pattern"]
        assert re.search(pattern, ",".join("a" * count))
        assert not re.search(pattern, ",".join("a" * (count + 1)))
        assert f"1 to {count} " in events[name]["description"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DOCUMENT["components"]["responses"]["UriTooLong"], f"{constants.PATH_LENGTH_MAX:,} "),
        (DOCUMENT["components"]["responses"]["UriTooLong"], f"than {constants.QUERY_LENGTH_MAX:,}"),
        (
            DOCUMENT["components"]["responses"]["HeadersTooLarge"],
            f"{constants.HEADERS_BYTES_MAX:,} bytes",
        ),
        (
            DOCUMENT["components"]["responses"]["ServerError"],
            f"{constants.REQUEST_TIMEOUT_S:g} seconds",
        ),
        (
            DOCUMENT["components"]["parameters"]["Since"],
            f"{constants.CANCELLATIONS_SINCE_DAYS} days ago",
        ),
        (
            OPERATIONS[constants.CANCELLATIONS_PATH],
            f"every {constants.CANCELLATIONS_SINCE_DAYS} days",
        ),
        (OPERATIONS[constants.EXPORT_PATH], f"00:{constants.EXPORT_SNAPSHOT_MINUTE:02d} UTC"),
        (OPERATIONS[constants.EXPORT_PATH], f"in {constants.EXPORT_INTERVAL_S:g} seconds"),
        (DOCUMENT["info"], f"one export in {constants.EXPORT_INTERVAL_S:g} seconds"),
        (OPERATIONS[constants.COINS_PATH], f"top {PLANS['free'].coverage_top}"),
        (DOCUMENT["info"], f"{PLANS['standard'].freshness_s} seconds ago"),
        (DOCUMENT["info"], f"{PLANS['free'].freshness_s // 3_600} hours ago"),
        (DOCUMENT["info"], f"for {constants.REQUEST_TIMEOUT_S:g} seconds"),
        (DOCUMENT["components"]["headers"]["CacheControl"], f" {constants.LIST_MAX_AGE_S},"),
        (DOCUMENT["components"]["headers"]["CacheControl"], f"{constants.CATEGORIES_MAX_AGE_S:,}"),
        (OPERATIONS[constants.CATEGORIES_PATH], f"{constants.CATEGORIES_MAX_AGE_S // 3_600} hours"),
    ],
)
def test_numbers_in_the_text_are_those_of_the_code(text: Node, expected: str) -> None:
    assert expected in " ".join(text["description"].split())


# Examples


def examples() -> Iterator[tuple[str, Node, object]]:
    for where, node in nodes(DOCUMENT):
        if "/example" in where:
            continue
        schema = node.get("schema", node)
        if "example" in node:
            yield where, schema, node["example"]
        for name, example in node.get("examples", {}).items():
            yield f"{where}/{name}", schema, example["value"]


@pytest.mark.parametrize(("where", "schema", "example"), list(examples()))
def test_example_fits_its_schema(where: str, schema: Node, example: object) -> None:
    validator(schema).validate(example)


def test_example_of_every_parameter_is_read_by_the_code() -> None:
    for path, name in QUERY_PARAMETERS:
        example = query_parameters(path)[name].get("example")
        text = str(example).lower() if isinstance(example, bool) else str(example)
        assert example is None or code_admits(path, name, text), name


def test_example_of_the_export_is_the_csv_of_the_example_event() -> None:
    content = OPERATIONS[constants.EXPORT_PATH]["responses"]["200"]["content"]
    event = msgspec.convert(SCHEMAS["Event"]["example"], records.Event)
    expected = records.HEADER + records.encode_rows([event])
    assert content["text/csv"]["example"].encode() == expected
    assert len(list(csv.reader(io.StringIO(expected.decode(), newline="")))) == 2


# Webhooks

HOOK: Node = DOCUMENT["x-webhooks"]["delivery"]["post"]


def test_webhooks_are_described_with_the_values_of_the_code() -> None:
    assert HOOK["x-signature-header"] == constants.SIGNATURE_HEADER
    assert HOOK["x-signature-forms"] == list(constants.SIGNATURE_FORMS)
    assert HOOK["x-signature-tolerance-s"] == constants.SIGNATURE_TOLERANCE_S
    assert HOOK["x-timeout-s"] == constants.WEBHOOK_TIMEOUT_S
    assert HOOK["x-retry-after-s"] == list(constants.WEBHOOK_RETRY_AFTER_S)
    assert HOOK["x-least-plan"] == least_plan(lambda plan: plan.webhooks)


def test_text_on_webhooks_names_the_same_values() -> None:
    text = " ".join(HOOK["description"].split())
    assert f"`{constants.SIGNATURE_HEADER}`" in text
    assert f"{constants.SIGNATURE_TOLERANCE_S} seconds away" in text
    assert f"within {constants.WEBHOOK_TIMEOUT_S:g} seconds" in text
    assert f"score is {constants.IMPACT_MAJOR:g} or more for the first time" in text
    assert "A withdrawn event is not pushed" in text
    for kind in re.findall(r"`(events\.[\w-]+)`", text):
        assert kind in constants.WEBHOOK_KINDS
    for form in re.findall(r"`(hex|t,v1)`", text):
        assert form in constants.SIGNATURE_FORMS
    units = {"seconds": 1, "minutes": 60, "hours": 3_600}
    (delays,) = re.findall(r"after ([^.]*?), counted", text)
    delays_s = [int(n) * units[unit] for n, unit in re.findall(r"(\d+) (\w+)", delays)]
    assert delays_s == list(constants.WEBHOOK_RETRY_AFTER_S)


def test_code_sample_accepts_what_the_service_signs_and_nothing_else() -> None:
    sample: Node = {}
    exec(HOOK["x-code-sample"], sample)
    is_genuine, body = sample["is_genuine"], b'{"id": "1"}'

    def signed(*secrets: str) -> str:
        return sign(body, secrets=secrets, at=datetime(2026, 10, 8, tzinfo=UTC))

    assert is_genuine(signed("old", "new"), body, "new")
    assert not is_genuine(signed("other"), body, "new")
    assert not is_genuine(signed("new"), body + b" ", "new")
    assert not any(is_genuine(wrong, body, "new") for wrong in ("", ",", "t=,v1=", "é", "00" * 32))
