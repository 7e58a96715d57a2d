"""Stage: sequences become documents with their trained runs, each proved (TurnBatch + TokenBatch → DocumentBatch).

Rows that bring their tokens become documents here without the stages before.
"""

from packer.supervise.documents import Supervised, Supervisor
from packer.supervise.given import GivenTokensSupervisor
from packer.supervise.surface import Surface

__all__ = ["GivenTokensSupervisor", "Supervised", "Supervisor", "Surface"]
