"""Verification that a cache is intact: its files, rows and blocks, and optionally a re-encoding of its inputs."""
