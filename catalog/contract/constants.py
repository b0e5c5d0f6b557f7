"""Every choice that the interface leaves open.

If a service differs, change the value here. Values only: the code that uses them
is in the other modules of this folder and in the server. Durations are seconds unless the
name says otherwise.
"""

from typing import Final, Literal

VERSION: Final = "v2"
VERSION_PATH: Final = "/v2"

COINS_PATH: Final = "/v2/coins"
EVENTS_PATH: Final = "/v2/events"
CANCELLATIONS_PATH: Final = "/v2/events/cancellations"
EXPORT_PATH: Final = "/v2/events/export"
CATEGORIES_PATH: Final = "/v2/categories"
USAGE_PATH: Final = "/v2/usage"
OPENAPI_PATH: Final = "/v2/openapi.json"
ERROR_DOCS: Final = "/docs#error-"
"""Where the reference explains an error code, which is added to it."""

KEY_HEADER: Final = "x-api-key"

CATALOG_STARTS: Final = "2017-01-01"
"""Where 'full, since 2017' begins (interface 8.3)."""

COINS_LIMIT_MAX: Final = 200
EVENTS_LIMIT_MAX: Final = 100
LIMIT_DEFAULT: Final = 50
COIN_SLUGS_MAX: Final = 100
CATEGORY_IDS_MAX: Final = 100
KEYWORD_LENGTH_MAX: Final = 200
CURSOR_LENGTH_MAX: Final = 1_024

CANCELLATIONS_SINCE_DAYS: Final = 90

IMPACT_MIN: Final = 0.0
IMPACT_MAX: Final = 10.0
IMPACT_MAJOR: Final = 7.5
IMPACT_BANDS: Final[tuple[tuple[float, str], ...]] = (
    (2.5, "Low"),
    (5.0, "Mid"),
    (7.5, "High"),
    (float("inf"), "Critical"),
)
"""Exclusive upper edge and name of each band, ascending."""

REQUEST_TIMEOUT_S: Final = 30.0
EXPORT_INTERVAL_S: Final = 60.0
"""A key may request one export in this time, in addition to the limits of rate and burst."""
EXPORT_SNAPSHOT_MINUTE: Final = 5
"""The export is the snapshot taken this many minutes after midnight, UTC."""

PATH_LENGTH_MAX: Final = 2_048
QUERY_LENGTH_MAX: Final = 8_192
HEADERS_BYTES_MAX: Final = 16_384

LIST_MAX_AGE_S: Final = 60
CATEGORIES_MAX_AGE_S: Final = 86_400

ENTERPRISE_RATE_PER_S: Final = 100.0
ENTERPRISE_BURST: Final = 500

SIGNATURE_HEADER: Final = "SVC-Signature"
SIGNATURE_TOLERANCE_S: Final = 300
SignatureForm = Literal["hex", "t,v1"]
SIGNATURE_FORMS: Final[tuple[SignatureForm, ...]] = ("hex", "t,v1")
"""The forms in which an endpoint can be signed to, the default first."""
AcceptedForm = Literal["hex", "t,v1", "base64"]
ACCEPTED_FORMS: Final[tuple[AcceptedForm, ...]] = ("hex", "t,v1", "base64")
"""The forms that a receiver can verify."""
WEBHOOK_API_VERSION: Final = "2025-10-01"
WEBHOOK_KINDS: Final = (
    *("events.created", "events.updated", "events.cancelled", "events.high-impact"),
)
WEBHOOK_MEANINGS: Final[dict[str, Literal["created", "updated", "cancelled"]]] = {
    "events.created": "created",
    "events.updated": "updated",
    "events.cancelled": "cancelled",
    "events.high-impact": "updated",
    "event.created": "created",
    "event.updated": "updated",
    "event.cancelled": "cancelled",
    "event.high-impact": "updated",
}
"""The meaning of each kind to a receiver. We send `WEBHOOK_KINDS`; other names are accepted."""
WEBHOOK_MATERIAL: Final = (
    *("date", "date_end", "date_type", "is_estimated"),
    *("impact", "description", "source_url"),
)
"""The columns of what is an `events.updated` if it changes: date, score, description, source."""
WEBHOOK_TIMEOUT_S: Final = 15.0
WEBHOOK_RETRY_AFTER_S: Final = (
    *(5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0),
)
"""The wait after each failed attempt; after the last attempt a delivery is a dead letter."""
