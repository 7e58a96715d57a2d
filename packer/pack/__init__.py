"""Stage: plans which pieces of which documents go into which blocks, and lays the blocks out."""
