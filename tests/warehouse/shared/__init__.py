"""The room `warehouse/shared`, as far as it needs no server; tests/lake has the rest."""
