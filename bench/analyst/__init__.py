"""Questions of an analyst, beside the same in pandas."""
