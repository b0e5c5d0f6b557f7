"""The service's interface as values: plans, records, parameters, errors, signatures, OpenAPI.

Nothing here listens, stores or waits; server, client and tests all read it.
Docstrings cite sections of the service's specification (`interface 4.8`), which is not in this
repository; these modules and reference.md state what it says.
"""
