"""Tests of the docs site."""
