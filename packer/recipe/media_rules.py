"""The keys of a recipe about images."""

from typing import Literal

import msgspec


class MediaRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    images: Literal["reject", "read"] = "reject"
    """What to do with rows that have images. ``read``: the tokenizer is the folder of a model with a processor."""

    root: str | None = None
    """The folder below which rows may name images; None means the folder of the file with the rows."""

    check: Literal["decode", "header"] = "decode"
    """How an image is examined. ``decode``: whole, so that a damaged one cannot stop a training run."""
