"""The look-ahead audit: which values of a back-test nobody could have known at the decision."""
