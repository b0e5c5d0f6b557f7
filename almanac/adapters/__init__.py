"""Features for the frameworks of back-tests, one module for each framework.

from almanac.adapters import freqtrade
dataframe = freqtrade.add_features(dataframe, metadata, db, timeframe=self.timeframe)
"""
