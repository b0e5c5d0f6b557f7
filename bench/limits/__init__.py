"""How closely the limits are used, beside nginx."""
