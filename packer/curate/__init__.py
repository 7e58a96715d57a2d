"""Which rows are kept: pure functions over texts and flat arrays."""
