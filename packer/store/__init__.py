"""Files, lock, Arrow, manifest and digests: the only part of packer that writes or opens a cache.

This module imports nothing, so that a reader of blocks loads only what it uses.
"""
