"""Stage: sequences become documents with their trained runs, each proved (TurnBatch + TokenBatch → DocumentBatch)."""

from packer.supervise.documents import Supervised, Supervisor
from packer.supervise.surface import Surface

__all__ = ["Supervised", "Supervisor", "Surface"]
