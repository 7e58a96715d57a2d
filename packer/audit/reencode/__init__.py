"""Documents made again from the inputs by the reference engine: `run` deals the work, `compare` does a partition."""

from packer.audit.reencode.run import Reencoded, Reencoding, reference_stages

__all__ = ["Reencoded", "Reencoding", "reference_stages"]
