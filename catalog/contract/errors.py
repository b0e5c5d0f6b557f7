"""The errors that a service answers with (interface section 7).

    ApiError                          status  code
    ├── InvalidParameter              400     invalid_request
    │   └── InvalidCursor             400     invalid_request
    ├── Forbidden                     403     unauthorized
    │   ├── PlanRequired              403     tier_required
    │   └── VersionRetired            403     version_retired
    ├── NotFound                      404     not_found
    ├── MethodNotAllowed              405     method_not_allowed
    ├── EventCancelled                410     event_cancelled
    ├── UriTooLong                    414     uri_too_long
    ├── RateLimited                   429     rate_limit_exceeded
    │   └── QuotaExceeded             429     quota_exceeded
    ├── HeadersTooLarge               431     headers_too_large
    ├── InternalError                 500     internal_error
    │   └── RequestTimeout            500     internal_error
    └── ServiceUnavailable            503     service_unavailable

All have the same body.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from catalog.contract import constants


class ApiError(Exception):
    """A response that is an error: status, code, message and the fields beside them."""

    status: ClassVar[int]
    code: ClassVar[str]
    default_message: ClassVar[str]

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
        return msgspec.json.encode({"error": error, "message": self.message, **self.beside})


class InvalidParameter(ApiError):
    status, code, default_message = 400, "invalid_request", "Invalid parameter"


class InvalidCursor(InvalidParameter):
    default_message = "Invalid cursor"


class Forbidden(ApiError):
    status, code, default_message = 403, "unauthorized", "Forbidden"


class PlanRequired(Forbidden):
    code, default_message = "tier_required", "Your plan does not include this"


class VersionRetired(Forbidden):
    code, default_message = "version_retired", "Forbidden"


class NotFound(ApiError):
    status, code, default_message = 404, "not_found", "Not found"


class MethodNotAllowed(ApiError):
    status, code, default_message = 405, "method_not_allowed", "Method not allowed"


class EventCancelled(ApiError):
    status, code, default_message = 410, "event_cancelled", "The event was cancelled"


class UriTooLong(ApiError):
    status, code, default_message = 414, "uri_too_long", "The path or query is too long"


class RateLimited(ApiError):
    status, code, default_message = 429, "rate_limit_exceeded", "Too Many Requests"


class QuotaExceeded(RateLimited):
    code = "quota_exceeded"


class HeadersTooLarge(ApiError):
    status, code, default_message = 431, "headers_too_large", "The headers are too large"


class InternalError(ApiError):
    status, code, default_message = 500, "internal_error", "Internal server error"


class RequestTimeout(InternalError):
    default_message = "The request ran longer than 30 seconds; reduce limit or narrow the filters"


class ServiceUnavailable(ApiError):
    status, code = 503, "service_unavailable"
    default_message = "The service is not available; try again later"
