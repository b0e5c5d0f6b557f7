"""Features for the frameworks of back-tests, one module for each framework.

    from almanac.adapters import freqtrade
    dataframe = freqtrade.add_features(dataframe, metadata, db, timeframe=self.timeframe)

Belongs here: putting what `Database.features` returns into the form that a framework takes, at the
row at which the framework can act on it; and the database as a resource of Dagster. Does not: what
was known (joins). No framework is a dependency: a module imports its own inside the functions that
need it, and `dagster`, which has a class of Dagster, is imported by nothing of the package.
"""
