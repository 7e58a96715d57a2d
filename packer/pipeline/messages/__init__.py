"""What a build says: what it leaves out, what it would change, and its result."""
