"""The number of examples of a property test: a few by default, many in the long run.

The few are the same each time and are not shrunk, so that the default run has a fixed time.
"""

from hypothesis import HealthCheck, Phase, settings

_PATIENT = [HealthCheck.too_slow]


def a_few(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=_PATIENT,
    )


def at_length(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=_PATIENT)
