"""Files that the user hands over: CSV and Parquet, read in full or refused."""
