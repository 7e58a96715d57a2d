"""Groups of a recipe's keys: what is trained, how documents become blocks and batches, and the columns it declares."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta

from packer.names import RuleName
from packer.recipe.row_rules import Rule

Share = Annotated[float, Meta(ge=0, le=1)]
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


MAX_BLOCK_LEN: Final = 2**20
"""Limit for the length of blocks and of padded rows: batches are allocated by it, and a cache may come from anybody."""

Tokens = Annotated[int, Meta(ge=1, le=MAX_BLOCK_LEN)]
PositiveInt = Annotated[int, Meta(ge=1, le=2**62)]

BatchingName = Literal["packed", "padded", "padding_free", "token_budget"]
Side = Literal["right", "left"]

EVERY_KEY = "packer explain recipe lists every key with its values"


class Pack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["isolated", "stream", "none"] = "isolated"
    """``isolated``: documents in a block cannot attend to each other. ``stream``: one stream of documents, cut at every
    block boundary, in which they can. ``none``: no blocks."""

    block_len: Tokens = 4096
    overlong: Literal["reject", "truncate_right", "split"] = "reject"
    max_pixels: PositiveInt | None = None
    align: Tokens = 1
    """Round the slots of each document up to a multiple of this: 2·cp for context parallelism, tp for sequence
    parallelism."""

    pad_id: Annotated[int, Meta(ge=0)] | None = None
    group_documents: Annotated[int, Meta(ge=1, le=2**32 - 1)] = 10_000_000
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield what does not fit together, and a hint."""
        if self.mode == "none":
            return
        if self.align > 1 and self.mode == "stream":
            hint = "--set pack.align=1, and make pack.block_len the multiple; or --set pack.mode=isolated"
            said = "in mode 'stream' a whole block is one sequence"
            yield f"pack.align: {said}; only documents that are sequences of their own are padded", hint
        if self.block_len % self.align:
            nearest = -(-self.block_len // self.align) * self.align
            hint = f"--block-len {nearest}" if nearest <= MAX_BLOCK_LEN else EVERY_KEY
            yield f"pack.align: {self.align} does not divide pack.block_len {self.block_len}", hint
        if self.mode == "stream" and self.overlong != "reject":
            said = "pack.overlong: a stream is cut wherever a block ends, whatever is there"
            yield said, "--set pack.overlong=reject"


class Read(Rule, frozen=True, kw_only=True):
    """Rules for batches of documents, by which no byte of a cache differs; see :mod:`packer.load.arguments`.

    The manifest stores them, so that every training run from a cache pads the same way by default.
    """

    batching: BatchingName = "packed"
    length: Tokens | None = None
    """Length to pad rows to, in tokens; None pads to the longest document of a micro-batch."""

    multiple_of: Tokens | None = None
    side: Side | None = None
    """Side of the padding; None means ``right``."""

    @property
    def padding(self) -> dict[str, int | Side]:
        """The keys about padding that are set."""
        said = {"length": self.length, "multiple_of": self.multiple_of, "side": self.side}
        return {name: value for name, value in said.items() if value is not None}

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield what does not fit together, and a hint."""
        if self.padding and self.batching != "padded":
            said = f"read.{next(iter(self.padding))}: batching '{self.batching}' pads no documents"
            yield said, "--set read.batching=padded"
        if self.length is not None and self.multiple_of is not None:
            yield "both read.length and read.multiple_of", "leave one of them out"


MAX_WIDTH = 256
"""A limit, as a batch has so many numbers for each slot, and a cache may come from anybody."""

TAKEN = frozenset({
    "doc_id", "input_ids", "labels", "spans", "length", "num_trained", "row", "sample_id", "side",
    "media", "digest", "attention_mask", "position_ids", "seq_lengths", "kto_tags", "images", "videos",
    "audios",
})  # fmt: skip
"""Names that shards or exports have for something else."""

_COLUMNS = "docs/how-to/columns.md shows every key"


class Column(Rule, frozen=True, kw_only=True):
    """What a column holds for each token or document: from a field of the rows, or a Parquet file with doc_ids."""

    kind: Literal["int32", "float32"]
    width: Annotated[int, Meta(ge=1, le=MAX_WIDTH)] | None = None
    """Values of each token; None is one, without a dimension of its own."""

    missing: int | float | None = None
    """Value of padding, and whatever has none; None refuses what has none, and gives padding 0."""

    field: str | None = None
    """Field of the rows, or column of the file; None is the column's own name."""

    file: str | None = None
    sha256: str | None = None
    """Of the file; filled in by the build."""

    def __post_init__(self) -> None:
        if self.sha256 is not None and self.file is None:
            raise ValueError("sha256 is of a file, and there is none")
        if self.missing is None:
            return
        if self.kind == "int32" and not (-(2**31) <= self.missing < 2**31 and self.missing == int(self.missing)):
            raise ValueError(f"missing: expected a whole number of 32 bits, found {self.missing}")
        if not abs(self.missing) < 3.4e38:
            raise ValueError("missing: expected a finite number of 32 bits")


ColumnRules = dict[RuleName, Column]
AnyRecipe = TypeVar("AnyRecipe", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A column with its name and place."""

    name: str
    of_tokens: bool
    rule: Column

    @property
    def field(self) -> str:
        return self.rule.field or self.name

    @property
    def fill(self) -> int | float:
        """Value where there is none."""
        return self.rule.missing or 0

    @property
    def form(self) -> tuple[Any, ...]:
        """What columns of one name have in common in caches that are read together."""
        return self.of_tokens, self.rule.kind, self.rule.width, self.fill

    @property
    def inner(self) -> tuple[int, ...]:
        """Shape of the value of one token or document."""
        return () if self.rule.width is None else (self.rule.width,)


def declared(recipe: Any) -> tuple[Declared, ...]:
    """Return the columns of a recipe, or of a manifest's `recipe`, by name; those of tokens may have a width."""
    groups = (("token_columns", True), ("document_columns", False))
    found = []
    for key, of_tokens in groups:
        rules = recipe.get(key, {}) if isinstance(recipe, Mapping) else getattr(recipe, key)
        for name, rule in msgspec.convert(rules, ColumnRules).items():
            found.append(Declared(name=name, of_tokens=of_tokens, rule=rule))
    return tuple(sorted(found, key=lambda each: each.name))


def with_rules(recipe: AnyRecipe, change: Callable[[Column], Column]) -> AnyRecipe:
    """Return a recipe with the rule of each of its columns changed."""
    for key in ("token_columns", "document_columns"):
        changed = {name: change(rule) for name, rule in getattr(recipe, key).items()}
        recipe = msgspec.structs.replace(recipe, **{key: changed})
    return recipe


def wrong_columns(recipe: Any) -> Iterator[tuple[str, str]]:
    """Yield why a recipe cannot have its columns, and a hint."""
    columns = declared(recipe)
    names = [each.name for each in columns]
    if columns and recipe.reads_images:
        yield "columns beside images are not supported", "--set media.images=reject"
    for each in columns:
        key = f"{'token_columns' if each.of_tokens else 'document_columns'}.{each.name}"
        if each.name in TAKEN or names.count(each.name) > 1:
            yield f"{key}: the name is taken", _COLUMNS
        elif each.rule.width is not None and not each.of_tokens:
            yield f"{key}: a width is for tokens; a document has one value", _COLUMNS
