"""The keys of a recipe about images."""

from typing import Literal

import msgspec

from packer.errors import RecipeError


class MediaRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    images: Literal["reject", "read"] = "reject"
    """What to do with rows that have images. ``read``: the tokenizer is the folder of a model with a processor."""

    root: str | None = None
    """The folder below which rows may name images; None means the folder of the file with the rows."""

    check: Literal["decode", "header"] = "decode"
    """How an image is examined. ``decode``: whole, so that a damaged one cannot stop a training run."""


def check_pixels(media: MediaRules, mode: str, where: str) -> None:
    """Refuse a limit of pixels for blocks that have no images, or that cut documents.

    Raises:
        RecipeError: it would have no effect.
    """
    if media.images != "read" or mode in {"eos", "stream"}:
        raise RecipeError(
            f"{where}: pack.max_pixels: only blocks with images, in mode isolated, have a limit of pixels",
            hint="--set media.images=read --set pack.mode=isolated, or leave it out",
        )
