"""The interface itself, declared once: plans, records, parameters, errors, forms, signature.

Nothing here listens, stores or waits; server, client and tests all read it.
"""
