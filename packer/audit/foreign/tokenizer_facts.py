"""What a tokenizer and its chat template say of ids: stop tokens, BOS, white space, how the header of an answer reads.

The header is found by rendering: what the template writes between a question and its answer, as far as a prompt and two
finished chats agree on it. Of its ids the last few are taken that hold a control token and do not stand before a
question or a system message too; so `<|im_start|>assistant`, `assistant<|end_header_id|>`, `[/INST]`. Where there is
no such sequence, as in templates that write roles as plain text, nothing is known of prompts, and nothing is said of
them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from packer.backend import load_backend
from packer.batches import Int64
from packer.errors import UsageError
from packer.model import TOKENIZER_FILE, Model, load_model
from packer.pipeline.input_resolution import pin_recipe, tokenizer_place
from packer.pipeline.progress import Silent
from packer.pipeline.stages import compile_template
from packer.recipe import make_recipe
from packer.render import ChatTemplate, RenderError
from packer.tokenize import ReferenceEncoder

_QUESTION, _ANSWER, _SYSTEM = "first question", "first answer", "rules of the row"
_NEXT_QUESTION, _NEXT_ANSWER = "second question", "second answer"

_SPACES = str.maketrans("", "", "ĠĊĉčċ▁ \n\t\r")
"""White space as vocabularies write it: bytes as letters, and SentencePiece's own."""

_REASONING = re.compile(r"[<\[][^<>\[\]\s]*(?:think|thought|reason)", re.IGNORECASE)
"""Where a block of reasoning opens. Some prompts close an empty one; what is in one that is not empty is answer too."""

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known; ids are int64. Without a tokenizer, nothing."""

    model: Model | None = None
    stop_ids: Int64 = field(default_factory=lambda: _NONE)
    space_ids: Int64 = field(default_factory=lambda: _NONE)
    """Tokens that are white space and nothing else."""

    bos_id: int | None = None
    writes_bos: bool = False
    """The template begins a conversation with it."""

    header: Int64 = field(default_factory=lambda: _NONE)
    """The end of an answer's header, without the white space it closes with; empty where it cannot be known."""

    openings: Int64 = field(default_factory=lambda: _NONE)
    """Ids that a conversation begins with, and those that follow its BOS; empty where its own text begins it."""

    bos_opens: bool = False
    """It does so, and writes it nowhere else: a BOS within a row is a conversation that begins there."""

    eos_ends_prompts: bool = False
    """The template writes EOS behind a question, so that it does not tell where a conversation ends."""

    no_header: str = "no tokenizer was named"
    """Why the header is not known."""

    def without_header(self, why: str) -> "Known":
        """The same, but that nothing is known of prompts and answers."""
        return replace(self, header=_NONE, openings=_NONE, no_header=why)


def find_known(tokenizer: Path | str | None, template: Path | None, note: Callable[[str], None] | None = None) -> Known:
    """Read a tokenizer and ask its template.

    Args:
        tokenizer: a folder, a tokenizer.json, or a name on the Hub.
        template: in place of the tokenizer's own.
        note: told which commit a name on the Hub is.

    Raises:
        UsageError: a template without a tokenizer.
        InputError: the tokenizer or the template cannot be read.
        TemplateError: the template is not valid Jinja.

    """
    if tokenizer is None:
        if template is not None:
            raise UsageError(
                f"template {template}: no tokenizer is named, and without one no ids of its text are known",
                hint="--tokenizer DIR, the tokenizer that the rows were made with",
            )
        return Known()
    pinned = pin_recipe(make_recipe({"tokenizer": str(tokenizer)}), note or Silent().note).tokenizer
    assert pinned is not None
    model = load_model(tokenizer_place(pinned), template=template)
    backend = load_backend(model.files[TOKENIZER_FILE])
    named = model.named_tokens.get("bos_token")
    known = Known(
        model=model,
        stop_ids=np.array(model.stop_ids, np.int64),
        space_ids=space_ids(model),
        bos_id=None if named is None else backend.token_to_id(named),
        no_header="the tokenizer has no chat template: --template names one",
    )
    return known if model.template is None else ask_template(known, model, model.template)


def space_ids(model: Model) -> Int64:
    """Tokens that are white space and nothing else, sorted."""
    vocabulary = load_backend(model.files[TOKENIZER_FILE]).get_vocab(with_added_tokens=True)
    added = {token.id for token in model.added_tokens}
    spaces = [i for piece, i in vocabulary.items() if i not in added and piece and _is_space(piece)]
    return np.array(sorted(spaces), np.int64)


def _is_space(piece: str) -> bool:
    return not piece.translate(_SPACES) or piece in {"<0x0A>", "<0x20>", "<0x09>", "<0x0D>"}


def ask_template(known: Known, model: Model, source: str) -> Known:
    """What is known of a model, and what a template adds.

    Raises:
        TemplateError: it is not valid Jinja.

    """
    template = compile_template(source, model, make_recipe({}))
    encoder = ReferenceEncoder(model.files[TOKENIZER_FILE])

    def ids(text: str) -> list[int]:
        return [int(i) for i in encoder.encode([text])[0]]

    try:
        prompt = _rendered(template, _QUESTION, prompt=True)
        plain = _rendered(template, _QUESTION, _ANSWER)
        chat = _rendered(template, _QUESTION, _ANSWER, _NEXT_QUESTION, _NEXT_ANSWER)
    except RenderError as error:
        return replace(known, no_header=f"the template refuses a plain chat: {error}")
    first, later, system = (
        ids(text) for text in (_before(chat, _QUESTION), _before(chat, _NEXT_QUESTION), _system_prefix(template))
    )
    # Behind a question: of a block of reasoning only that it opens is part of the header.
    endings = [ids(_REASONING.split(_behind(text, _QUESTION))[0]) for text in (prompt, chat, plain)]
    same = endings[0][: min(_common(endings[0], other) for other in endings[1:])]
    control = {token.id for token in model.added_tokens} | set(model.stop_ids)
    header = _distinct(same, [each for each in (first, later, system) if each], control)
    while header and header[-1] in known.space_ids:
        header = header[:-1]
    chat_ids = ids(chat)
    writes_bos = chat_ids[:1] == [known.bos_id]
    words = [[token for token in before if token != known.bos_id][:1] for before in (first, system)]
    openings = [*words[0], *words[1], *first[:1], *system[:1]] if words[0] else []
    return replace(
        known,
        header=np.array(header, np.int64),
        openings=np.unique(np.array(openings, np.int64)),
        bos_opens=writes_bos and chat_ids.count(chat_ids[0]) == 1,
        eos_ends_prompts=model.eos_id in ids(_behind(prompt, _QUESTION)),
        writes_bos=writes_bos,
        no_header="" if header else "no control token tells the header of an answer from that of a question",
    )


def _rendered(template: ChatTemplate, *said: str, prompt: bool = False) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
    return template.render(messages, add_generation_prompt=prompt)


def _system_prefix(template: ChatTemplate) -> str:
    """What stands before the text of a system message; nothing where the template takes none."""
    said = (("system", _SYSTEM), ("user", _QUESTION), ("assistant", _ANSWER))
    try:
        text = template.render([{"role": role, "content": content} for role, content in said])
    except RenderError:
        return ""
    place = text.find(_SYSTEM)
    return text[:place] if 0 <= place < text.find(_QUESTION) else ""


def _before(text: str, content: str) -> str:
    return text[: max(text.find(content), 0)]


def _behind(text: str, content: str) -> str:
    return text[text.find(content) + len(content) :] if content in text else ""


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two sequences begin with that are the same."""
    shorter = min(len(first), len(second))
    return next((i for i in range(shorter) if first[i] != second[i]), shorter)


def _distinct(own: Sequence[int], others: Sequence[Sequence[int]], control: set[int]) -> list[int]:
    """The shortest end of some ids with a control token that no other ends with; empty where there is none."""
    for size in range(1, len(own) + 1):
        tail = list(own[-size:])
        if control.intersection(tail) and all(list(other[-size:]) != tail for other in others):
            return tail
    return []
