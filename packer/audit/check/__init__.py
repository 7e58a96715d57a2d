"""Checks of the rows in a cache: duplicates, leaks between splits, benchmark contamination."""
