"""What the worker processes of Spark, Ray and Dask run: this package, over one publication."""
