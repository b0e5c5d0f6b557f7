from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec
from openapi_spec_validator import OpenAPIV30SpecValidator

from catalog.contract import records
from catalog.contract.errors import InvalidParameter
from catalog.contract.openapi import EXAMPLE, openapi_document
from catalog.contract.parameters import QUERY_PARAMETERS, read_query
from catalog.contract.signatures import sign
from tests.documented import Node, resolve, validator

DOCUMENT: Node = msgspec.json.decode(msgspec.json.encode(openapi_document()))
SCHEMAS: Node = DOCUMENT["components"]["schemas"]
HOOK: Node = DOCUMENT["x-webhooks"]["delivery"]["post"]
ASKED = {
    (path, each["name"]): each["schema"]
    for path in QUERY_PARAMETERS
    for each in DOCUMENT["paths"][path]["get"]["parameters"]
    if each["in"] == "query"
}


def test_the_document_is_valid_openapi_3_0_and_its_json_is_stable() -> None:
    OpenAPIV30SpecValidator(DOCUMENT).validate()
    openapi_document.cache_clear()
    assert msgspec.json.decode(msgspec.json.encode(openapi_document())) == DOCUMENT


def test_examples_fit_their_schemas_and_impact_is_null_a_band_or_a_score() -> None:
    impact = validator(resolve(DOCUMENT, SCHEMAS["Event"]["properties"]["impact"]))
    assert all(map(impact.is_valid, [None, "Low", "Critical", 0, 10, 7.25]))
    assert not any(map(impact.is_valid, ["low", "7.5", -0.1, 10.1, True, []]))
    validator(resolve(DOCUMENT, SCHEMAS["Event"])).validate(SCHEMAS["Event"]["example"])
    assert msgspec.convert(SCHEMAS["Event"]["example"], records.Event) == EXAMPLE
    for name, response in DOCUMENT["components"]["responses"].items():
        media = response["content"]["application/json"]
        for code, example in media["examples"].items():
            validator(resolve(DOCUMENT, media["schema"])).validate(example["value"])
            assert example["value"]["error"]["code"] == code, name


DATES = """2026-02-28 2026-02-29 2024-02-29 1900-02-29 0000-01-01 0001-01-01 9999-12-31 2026-04-31
    2026-13-01 2026-1-1 20260101 2026-10-08T23:59:59.999999999Z 2026-10-08T24:00:00Z today
    2026-10-08T00:00:60Z 2026-10-08T00:00:00 2026-10-08T00:00:00-00:00 2026-10-08T00:00:00.Z
    2026-10-08T00:00:00+01:00 2026-10-08t00:00:00z 2026-10-08T00:00:00.1234567890Z ٢026-10-08"""
NAMES = (
    "",
    ",",
    "a",
    "a,",
    ",a",
    "a\nb",
    "a,b\n",
    "A B,é",
    ",".join("a" * 100),
    ",".join("a" * 101),
)
PROBES = {
    "limit": ["0", "1", "100", "101", "200", "201", "-1", "1.5", "x", "", "1e2", " 1", "١"],
    "tracked": ["true", "false", "True", "1", "yes", ""],
    "impactMin": ["0", "10", "10.0001", "-0.0001", "7.5", "1e-05", "5e-324", "nan", "inf", "x", ""],
    "sortBy": ["date_asc", "impact_desc", "date_desc", ""],
    "cursor": ["", "a", "a" * 1_024, "a" * 1_025],
    **dict.fromkeys(("q", "keyword"), ("", "a", "é" * 200, "é" * 201)),
    **dict.fromkeys(("coins", "categories"), NAMES),
    **dict.fromkeys(("from", "to", "since"), ("", "2026-10-08 00:00:00Z", *DATES.split())),
}


def schema_admits(path: str, name: str, text: str) -> bool:
    schema = resolve(DOCUMENT, ASKED[path, name])
    value: object = text
    if schema["type"] == "boolean":
        value = {"true": True, "false": False}.get(text, text)
    elif schema["type"] in ("integer", "number") and not text.startswith(" "):
        kind = int if schema["type"] == "integer" else float
        try:
            value = msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError:
            value = text
    # Python's `$` also matches before a last line feed; the document's does not.
    if "pattern" in schema:
        schema = {**schema, "pattern": schema["pattern"].removesuffix("$") + r"\Z"}
    return validator(schema).is_valid(value)


def code_admits(path: str, name: str, text: str) -> bool:
    try:
        read_query(urlencode({name: text}), QUERY_PARAMETERS[path])
    except InvalidParameter:
        return False
    return True


def test_schema_admits_exactly_what_the_code_admits() -> None:
    for path, name in ASKED:
        for text in PROBES[name]:
            found = schema_admits(path, name, text), code_admits(path, name, text)
            assert found[0] == found[1], (path, name, text)


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
