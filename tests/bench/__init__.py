"""Benchmarks: each a command that prints a small table and writes JSON beside it. Nothing here is part of the tests."""
