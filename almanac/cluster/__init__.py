"""Worker processes of Spark, Ray and Dask, which run this package over one publication."""
