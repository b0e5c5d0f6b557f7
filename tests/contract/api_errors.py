"""All errors of the contract, in the order of their definition."""

from catalog.contract import errors

ALL_ERRORS: tuple[type[errors.ApiError], ...] = tuple(
    found
    for found in vars(errors).values()
    if isinstance(found, type)
    and issubclass(found, errors.ApiError)
    and found is not errors.ApiError
)
