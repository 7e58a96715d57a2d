"""Stage: partitions and rows."""
