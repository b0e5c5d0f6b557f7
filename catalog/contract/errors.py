"""The errors that a service answers with, all with the same body (interface section 7)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec

from catalog.contract import constants
from catalog.contract.records import Instant, Record


class Error(Record, frozen=True):
    """The error, for programs and people."""

    code: Annotated[str, "The kind of the error, for programs."]
    message: Annotated[str, "The error in words, for people."]
    request_id: Annotated[str, "Names this request; give it when you ask about the error."]
    docs: Annotated[str, "Where the code is explained, relative to the address of the service."]


class ErrorBody(Record, frozen=True):
    """The body of every error."""

    error: Error
    message: Annotated[str, "The same text as `error.message`."]


class CancelledBody(ErrorBody, frozen=True):
    """The body of the error of a cancelled event."""

    id: Annotated[str, "The event's identifier."]
    cancelled_at: Annotated[Instant, "When it was cancelled, UTC."]


class ApiError(Exception):
    """A response that is an error: status, code, message and the fields beside them."""

    status: ClassVar[int]
    code: ClassVar[str]
    default_message: ClassVar[str]
    when: ClassVar[str]
    """Explains when a server sends this error; a text of the OpenAPI document."""
    form: ClassVar[type[ErrorBody]] = ErrorBody

    def __init__(
        self,
        message: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        beside: Mapping[str, str] | None = None,
    ) -> None:
        self.message = message or self.default_message
        self.headers = dict(headers or {})
        self.beside = dict(beside or {})
        super().__init__(self.message)

    def body(self, request_id: str) -> bytes:
        """Return the JSON body, one shape for every error.

        `docs` is relative: a server behind another name does not know its own address.
        """
        error = {
            "code": self.code,
            "message": self.message,
            "requestId": request_id,
            "docs": f"{constants.ERROR_DOCS}{self.code}",
        }
        fields = {"error": error, "message": self.message, **self.beside}
        return msgspec.json.encode(msgspec.convert(fields, self.form))


class InvalidParameter(ApiError):
    status, code, default_message = 400, "invalid_request", "Invalid parameter"
    when = "A parameter has a wrong form or was given twice."


class InvalidCursor(InvalidParameter):
    default_message = "Invalid cursor"
    when = "The cursor belongs to another list or to other filters."


class Forbidden(ApiError):
    status, code, default_message = 403, "unauthorized", "Forbidden"
    when = "The key is missing, unknown, revoked or of V1."


class PlanRequired(Forbidden):
    code, default_message = "tier_required", "Your plan does not include this"
    when = "The plan does not include this."


class VersionRetired(Forbidden):
    code, default_message = "version_retired", "Forbidden"
    when = "The path is one of V1."


class NotFound(ApiError):
    status, code, default_message = 404, "not_found", "Not found"
    when = "There is no such path or record, or it is an event that the plan does not show."


class MethodNotAllowed(ApiError):
    status, code, default_message = 405, "method_not_allowed", "Method not allowed"
    when = "The method is neither GET nor HEAD."


class BodyTooSlow(ApiError):
    status, code, default_message = 408, "body_too_slow", "The body arrived too slowly"
    when = "The body of the request arrived too slowly."


class EventCancelled(ApiError):
    status, code, default_message = 410, "event_cancelled", "The event was cancelled"
    when = "The event was cancelled."
    form = CancelledBody


class BodyTooLarge(ApiError):
    status, code, default_message = 413, "body_too_large", "The body is too large"
    when = "The body of the request is too large."


class UriTooLong(ApiError):
    status, code, default_message = 414, "uri_too_long", "The path or query is too long"
    when = "The path is longer than 2,048 characters, or the query than 8,192."


class RateLimited(ApiError):
    status, code, default_message = 429, "rate_limit_exceeded", "Too Many Requests"
    when = "Faster than rate and burst allow, or a second export within a minute."


class QuotaExceeded(RateLimited):
    code = "quota_exceeded"
    when = "The month's quota is used up."


class HeadersTooLarge(ApiError):
    status, code, default_message = 431, "headers_too_large", "The headers are too large"
    when = "The request's headers are larger than 16,384 bytes."


class InternalError(ApiError):
    status, code, default_message = 500, "internal_error", "Internal server error"
    when = "The server failed."


class RequestTimeout(InternalError):
    default_message = "The request ran longer than 30 seconds; reduce limit or narrow the filters"
    when = "The request ran longer than 30 seconds."


class ServiceUnavailable(ApiError):
    status, code = 503, "service_unavailable"
    default_message = "The service is not available; try again later"
    when = "The service can't answer now."


ERRORS: Final[tuple[type[ApiError], ...]] = tuple(
    found
    for found in list(vars().values())
    if isinstance(found, type) and issubclass(found, ApiError) and found is not ApiError
)
"""All errors of the interface."""
