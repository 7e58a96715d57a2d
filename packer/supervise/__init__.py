"""Stage: sequences become documents with their trained runs, each proved (TurnBatch + TokenBatch → DocumentBatch).

Rows that bring their tokens become documents here without the stages before. The sides of pairs come as rows of their
own, and are put together here.
"""

from packer.supervise.preference import by_side, join_sides, row_of_side
from packer.supervise.pretokenized import PretokenizedSupervisor
from packer.supervise.round_trip import RoundTrip
from packer.supervise.supervisor import Supervised, Supervisor

__all__ = ["PretokenizedSupervisor", "RoundTrip", "Supervised", "Supervisor", "by_side", "join_sides", "row_of_side"]
