"""The keys of a recipe about texts that are trained to be filled in."""

from typing import Annotated

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Infilling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fill in the middle (Bavarian et al., 2022) for rows of text, such as code."""

    tokens: tuple[str, str, str]
    """Added tokens of the tokenizer that stand before the prefix, the suffix and the middle."""

    rate: Share = 0.5
    """Share of the rows that are cut into prefix, middle and suffix; the others stay as they are."""

    spm: Share = 0.5
    """Share of these whose suffix comes first (SPM); the others have the prefix first (PSM)."""

    def __post_init__(self) -> None:
        if len({*self.tokens}) < len(self.tokens):
            raise ValueError("`tokens` are three different ones")
