"""How much of a fault is tried: a seeded small part in `make test`, all that is promised in `make faults`."""

import os

FULL = os.environ.get("PACKER_FAULTS") == "full"


def amount(*, small: int, full: int) -> int:
    """How many to try."""
    return full if FULL else small
