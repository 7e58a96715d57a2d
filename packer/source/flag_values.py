"""What a value says of whether, or how much, something is trained: yes, no, or a number; also as a text, as in CSV."""

import math
from contextlib import suppress
from typing import Any

TRAIN_FIELDS = ("train", "training", "trainable", "loss", "loss_mask", "masked")
"""Fields that decide whether a message is trained: packer's and those of OpenAI's dialects, axolotl, tinker, ms-swift,
a mask, and torchtune's, which says the contrary."""

WEIGHT_FIELDS = ("weight", "loss_weight")
"""Fields that say how much a message, or a row, is trained."""

YES = ("true", "1", "1.0", "yes")
NO = ("false", "0", "0.0", "-1", "-1.0", "no")


def as_flag(value: Any) -> bool | None:
    """Return what a value says if it is yes or no: a boolean, 1, 0 or -1, or a text that says so.

    Example:
        >>> as_flag(1), as_flag("no"), as_flag(0.5), as_flag("A")
        (True, False, None, None)
    """
    said = str(value).lower() if isinstance(value, bool | int | float | str) else ""
    return said in YES if said in (*YES, *NO) else None


def as_number(value: Any) -> float:
    """Return a number, also of a text, since CSV has only texts; NaN for other values.

    Example:
        >>> as_number("-0.5"), as_number(True)
        (-0.5, nan)
    """
    with suppress(OverflowError, TypeError, ValueError):
        return math.nan if isinstance(value, bool) else float(value)
    return math.nan


def as_weight(value: Any) -> float:
    """Return how much a value says that something is trained: a number, or 1 and 0 for yes and no; NaN for others."""
    flag = as_flag(value)
    return as_number(value) if flag is None else float(flag)
