"""Facts about a tokenizer and its chat template: stop tokens, BOS, white space, the ids of an answer's header.

The header is found by rendering: it is the text between a question and its answer that is common to a prompt and two
finished chats. The shortest suffix of its ids is used that contains a control token and does not also precede a
question or a system message: `<|im_start|>assistant`, `assistant<|end_header_id|>`, `[/INST]`. If there is no such
suffix, as in templates that write roles as plain text, prompts cannot be recognized, and checks of them are skipped.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from pathlib import Path

import numpy as np

from packer.audit.token_texts import TokenTexts
from packer.batches import Bool, Int64
from packer.model.backend import load_backend
from packer.model.model import TOKENIZER_FILE, Model, load_model
from packer.model.token_bytes import TokenBytes
from packer.pipeline.plan.input_resolution import pin_recipe, tokenizer_place
from packer.pipeline.stages import compile_template
from packer.recipe.recipe import make_recipe
from packer.render.environment import RenderError
from packer.tokenize.reference_encoder import ReferenceEncoder

_QUESTION, _ANSWER, _SYSTEM = "first question", "first answer", "rules of the row"
_NEXT_QUESTION, _NEXT_ANSWER = "second question", "second answer"

_REASONING = re.compile(r"[<\[][^<>\[\]\s]*(?:think|thought|reason)", re.IGNORECASE)
"""Start of a reasoning block. Some prompts include an empty block; the content of others belongs to the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """Facts about a tokenizer and template. Ids are int64."""

    model: Model
    texts: TokenTexts
    stops: tuple[int, ...]
    spaces: Bool
    """[V + 2] which ids consist of white space only; the first and the last entry are for ids out of range."""

    bos_id: int | None
    openings: tuple[int, ...] = ()
    """Ids that begin a conversation, and markers that follow its BOS; empty if it begins with text of a message."""

    header: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """The end of an answer's header, without trailing white space; empty if it is unknown."""

    bos_opens: bool = False
    """Whether the template writes the BOS only at the beginning of a conversation; then a BOS in a row begins one."""

    why_no_header: str = "the tokenizer has no chat template: --template names one"

    def text(self, ids: Int64) -> str:
        """Decode ids, including special tokens; ids outside the vocabulary are written as numbers."""
        groups = groupby(ids.tolist(), lambda token: 0 <= token < self.model.vocab_size)
        return "".join(
            self.texts.decode(np.array([*own], np.int32)) if known else "".join(f"[{token}]" for token in own)
            for known, own in groups
        )


def load_facts(
    tokenizer: Path | str, template: Path | None, note: Callable[[str], None] = lambda _: None
) -> TokenizerFacts:
    """Load a tokenizer and derive facts from it and its template; note the commit that a name of the Hub means."""
    pinned = pin_recipe(make_recipe({"tokenizer": str(tokenizer)}), note).tokenizer
    assert pinned is not None
    return facts_of(load_model(tokenizer_place(pinned), template=template))


def facts_of(model: Model) -> TokenizerFacts:
    """Return the facts of a tokenizer and of its template, if it has one."""
    is_space = [False, *(entry is not None and entry.isspace() for entry in TokenBytes(model).table), False]
    bos = model.named_tokens.get("bos_token")
    facts = TokenizerFacts(
        model=model,
        texts=TokenTexts(model),
        stops=model.stop_ids,
        spaces=np.array(is_space, np.bool_),
        bos_id=None if bos is None else load_backend(model.files[TOKENIZER_FILE]).token_to_id(bos),
    )
    return facts if model.template is None else _with_template(facts, model, model.template)


def _with_template(facts: TokenizerFacts, model: Model, source: str) -> TokenizerFacts:
    """Add the facts of a template to those of its tokenizer."""
    template, encoder = compile_template(source, model, make_recipe({})), ReferenceEncoder(model.files[TOKENIZER_FILE])

    def rendered(*said: str, system: Sequence[dict[str, str]] = (), prompt: bool = False) -> str:
        chat = ({"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(said))
        return template.render([*system, *chat], add_generation_prompt=prompt)

    def ids(text: str) -> list[int]:
        return [int(i) for i in encoder.encode([text])[0]]

    ruled = ""
    try:
        prompt = rendered(_QUESTION, prompt=True)
        plain = rendered(_QUESTION, _ANSWER)
        chat = rendered(_QUESTION, _ANSWER, _NEXT_QUESTION, _NEXT_ANSWER)
    except RenderError as error:
        return replace(facts, why_no_header=f"the template refuses a plain chat: {error}")
    with suppress(RenderError):
        ruled = rendered(_QUESTION, _ANSWER, system=[{"role": "system", "content": _SYSTEM}])
    first, following = (ids(_before(chat, question)) for question in (_QUESTION, _NEXT_QUESTION))
    system = ids(_before(_before(ruled, _QUESTION), _SYSTEM))
    # The text after a question, up to the start of a reasoning block.
    endings = [ids(_REASONING.split(text.partition(_QUESTION)[2])[0]) for text in (prompt, chat, plain)]
    same = [group[0] for group in takewhile(lambda group: len({*group}) == 1, zip(*endings, strict=False))]
    control = {token.id for token in model.added_tokens if not token.is_text} | {*model.stop_ids}
    header = _distinct(same, [each for each in (first, following, system) if each], control)
    while header and facts.spaces[header[-1] + 1]:
        header = header[:-1]
    after_bos = [[token for token in each if token != facts.bos_id][:1] for each in (first, system)]
    # The BOS may be ChatML's marker, which the word `user` follows; rows are full of such words.
    openings = [*control.intersection(after_bos[0] + after_bos[1]), *first[:1], *system[:1]] if after_bos[0] else []
    chat_ids = ids(chat)
    return replace(
        facts,
        openings=tuple(sorted({*openings})),
        header=np.array(header, np.int64),
        bos_opens=chat_ids[:1] == [facts.bos_id] and chat_ids.count(chat_ids[0]) == 1,
        why_no_header="" if header else "no control token tells the header of an answer from that of a question",
    )


def _before(text: str, content: str) -> str:
    return text[: max(text.find(content), 0)]


def _distinct(own: Sequence[int], others: Sequence[Sequence[int]], control: set[int]) -> list[int]:
    """Return the shortest suffix that contains a control token and is not a suffix of any other; empty if none is."""
    for size in range(1, len(own) + 1):
        tail = list(own[-size:])
        if control.intersection(tail) and all(list(other[-size:]) != tail for other in others):
            return tail
    return []
