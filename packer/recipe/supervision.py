"""The keys of a recipe about what is trained of conversations, and of texts that are trained to be filled in."""

from typing import Annotated, Literal, get_args

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Part = Literal["reasoning", "text", "calls"]
PARTS: tuple[Part, ...] = get_args(Part)
DroppedKind = Literal["system", "user", "content", "reasoning", "tool_call", "tool_result", "tools"]


class Supervision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    turns: Literal["all", "last", "marked", "conversation"] = "all"
    """Which answers are trained. ``conversation``: whole documents are, from their second token on."""

    parts: tuple[Part, ...] | None = None
    """What of a trained answer is trained; None means all of it."""

    history_rewrite: Literal["exact", "last", "as_rendered"] | None = None
    """What to train if the template rewrites history. None means ``exact``, but a build stops and asks if that is
    costly."""

    on_prompt_mismatch: Literal["refuse", "continue"] | None = None
    """What to do if a turn does not continue any prompt. None means ``refuse``, but a build sets ``continue`` if all
    rows of a source need it (:mod:`packer.pipeline.plan.open_keys`). ``continue``: train the answer after its prompt,
    if that has opened the reasoning, or if the template writes the context differently once it is answered."""

    reasoning: Literal["as_given", "field", "inline"] = "as_given"
    """How reasoning is passed to the template. ``field``: as `reasoning_content`, including reasoning that a row has
    inline in tags such as `<think>`. ``inline``: in `<think>` tags before the text, including reasoning that a row has
    in a field; tags of a row that the template does not know are text."""

    stop: tuple[str, ...] = ()
    no_terminator: Literal["refuse", "append"] = "refuse"
    allow_dropped: tuple[DroppedKind, ...] = ()
    markers: Literal["refuse", "text"] = "refuse"
    """What to do about role markers such as `<|user|>` that are not a single token. ``text``: treat them as plain
    text."""

    control_tokens: Literal["text", "reject", "allow"] = "text"
    """What to do about control tokens typed in a message. ``text``: encode them as ordinary text outside assistant
    turns, and reject the row if they are inside one. ``reject``: always reject. ``allow``: always encode them as
    ordinary text."""

    def __post_init__(self) -> None:
        if self.parts is None:
            return
        parts = tuple(part for part in PARTS if part in self.parts)  # in one order
        if not parts:
            raise ValueError(f"`parts` names none of {', '.join(PARTS)}; null trains all of an answer")
        if self.turns == "conversation":
            raise ValueError(
                "`parts` of answers, beside `turns: conversation`, which trains all; leave one of them out"
            )
        msgspec.structs.force_setattr(self, "parts", None if parts == PARTS else parts)


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
