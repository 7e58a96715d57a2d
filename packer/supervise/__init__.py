"""Stage: sequences become documents with their trained runs, each proved (TurnBatch + TokenBatch → DocumentBatch).

Rows that bring their tokens become documents here without the stages before.
"""

from packer.supervise.pretokenized import PretokenizedSupervisor
from packer.supervise.round_trip import Surface
from packer.supervise.supervisor import Supervised, Supervisor

__all__ = ["PretokenizedSupervisor", "Supervised", "Supervisor", "Surface"]
