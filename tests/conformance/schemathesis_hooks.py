"""Rules that a schema can't have, for schemathesis: its command line loads this module."""

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Keep valid cases valid: a cursor can't be made up, and `from` must not be after `to`.

    `X-As-Of` must name the time of `as_of`, and the coverage phase sends `0` in it.
    """
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.headers:
        case.headers.pop("X-As-Of", None)
    if not isinstance(case.query, dict):
        return
    case.query.pop("cursor", None)
    bounds = [case.query.get("from"), case.query.get("to")]
    if None in bounds:
        return
    if bounds[0][:19] == bounds[1][:19]:
        del case.query["to"]
    else:
        case.query["from"], case.query["to"] = sorted(bounds)
