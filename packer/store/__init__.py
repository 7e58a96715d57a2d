"""Files, lock, Arrow, manifest and digests: the only part of packer that writes a cache."""
