"""The number of examples of a property of whole batches: few by default, many in a long run."""

from hypothesis import Phase, settings


def examples(few: int, many: int) -> settings:
    """Return the settings. The few are the same each time and are not shrunk."""
    if settings.get_current_profile_name() == "long":
        return settings(max_examples=many)
    return settings(max_examples=few, derandomize=True, phases=[Phase.explicit, Phase.generate])
