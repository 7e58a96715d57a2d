"""The batch that rendering hands on: the texts of all rows, one after another."""

from collections.abc import Sequence

import numpy as np

from packer.batches import Rejection, TurnBatch
from packer.render.rewritten_history import EncodedText


def turn_batch(
    texts: Sequence[EncodedText], owners: Sequence[int], skipped: Sequence[int], rejections: Sequence[Rejection]
) -> TurnBatch:
    """Concatenate the texts, and shift the positions of their turns and ranges accordingly."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    turns: list[tuple[int, int, int, int, float]] = []
    guarded: list[tuple[int, int]] = []
    masked: list[tuple[int, int]] = []
    start = 0
    for number, text in enumerate(texts):
        turns += [(number, *turn) for turn in text.turns]
        guarded += [(start + a, start + b) for a, b in text.guarded]
        masked += [(start + a, start + b) for a, b in text.masked]
        offsets[number + 1] = start = start + len(text.content)
    columns = list(zip(*turns, strict=True)) if turns else [()] * 5
    return TurnBatch(
        text=b"".join(text.content for text in texts),
        text_offsets=offsets,
        raw=np.array([text.raw for text in texts], np.bool_),
        sample=np.array(owners, np.int32),
        turn_text=np.array(columns[0], np.int32),
        turn_message=np.array(columns[1], np.int32),
        prompt_end=np.array(columns[2], np.int64),
        completion_end=np.array(columns[3], np.int64),
        weight=np.array(columns[4], np.float32),
        skipped=np.array(skipped, np.int32),
        guarded=np.array(guarded, np.int64).reshape(-1, 2),
        masked=np.array(masked, np.int64).reshape(-1, 2),
        rejections=tuple(rejections),
        images={number: text.images for number, text in enumerate(texts) if text.images},
    )
