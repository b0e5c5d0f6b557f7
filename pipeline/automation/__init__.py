"""Dagster's jobs, schedule and sensors."""
