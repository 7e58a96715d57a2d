"""Stage: which document lies where, and the blocks themselves."""

from packer.pack.gather import DocumentColumns, gather
from packer.pack.plan import plan

__all__ = ["DocumentColumns", "gather", "plan"]
