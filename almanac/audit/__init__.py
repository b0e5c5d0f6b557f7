"""The look-ahead audit: finds back-test values that were not yet known at the decision."""
