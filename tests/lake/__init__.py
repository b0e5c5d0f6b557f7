"""The lake past one machine: PostgreSQL, an S3 server and Spark, each started by the tests."""
