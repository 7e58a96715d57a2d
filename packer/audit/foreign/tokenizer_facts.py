"""Facts about a tokenizer and its chat template: stop tokens, BOS, white space, the ids of an answer's header.

The header is found by rendering: it is the text between a question and its answer that is common to a prompt and two
finished chats. The shortest suffix of its ids is used that contains a control token and does not also precede a
question or a system message: `<|im_start|>assistant`, `assistant<|end_header_id|>`, `[/INST]`. If there is no such
suffix, as in templates that write roles as plain text, prompts cannot be recognized, and checks of them are skipped.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from packer.batches import Bool, Int64
from packer.errors import UsageError
from packer.model.backend import load_backend
from packer.model.model import TOKENIZER_FILE, Model, load_model
from packer.pipeline.plan.input_resolution import pin_recipe, tokenizer_place
from packer.pipeline.stages import compile_template
from packer.recipe.recipe import make_recipe
from packer.render import ChatTemplate, RenderError
from packer.tokenize import ReferenceEncoder

_QUESTION, _ANSWER, _SYSTEM = "first question", "first answer", "rules of the row"
_NEXT_QUESTION, _NEXT_ANSWER = "second question", "second answer"

_SPACES = str.maketrans("", "", "ĠĊĉčċ▁ \n\t\r")
"""White space as vocabularies write it: bytes mapped to letters, and SentencePiece's own character."""

_REASONING = re.compile(r"[<\[][^<>\[\]\s]*(?:think|thought|reason)", re.IGNORECASE)
"""Start of a reasoning block. Some prompts include an empty block; the content of others belongs to the answer."""

_NONE = np.zeros(0, np.int64)


class IdSet:
    """A set of ids as a lookup table, which is many times faster than searching them for each row."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.ids = tuple(sorted({*ids}))
        self._table = np.zeros(max(self.ids, default=0) + 3, np.bool_)
        self._table[np.array(self.ids, np.int64) + 1] = True  # the first and the last entry are for ids out of range

    def __len__(self) -> int:
        return len(self.ids)

    def mask(self, ids: Int64) -> Bool:
        """Return which ids are in the set; they may be of any value.  # bool[n]"""
        found: Bool = np.take(self._table, ids + 1, mode="clip")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """Facts about a tokenizer and template; all are empty without a tokenizer. Ids are int64."""

    model: Model | None = None
    stops: IdSet = field(default_factory=IdSet)
    spaces: IdSet = field(default_factory=IdSet)
    """Tokens that consist of white space only."""

    bos_id: int | None = None
    header: Int64 = field(default_factory=lambda: _NONE)
    """The end of an answer's header, without trailing white space; empty if it is unknown."""

    openings: IdSet = field(default_factory=IdSet)
    """Ids that begin a conversation, and markers that follow its BOS; empty if it begins with text of a message."""

    bos_opens: bool = False
    """Whether the template writes the BOS only at the beginning of a conversation; then a BOS in a row begins one."""

    no_header: str = "no tokenizer was named"
    """Why the header is unknown."""

    @property
    def backend(self) -> Tokenizer | None:
        return None if self.model is None else load_backend(self.model.files[TOKENIZER_FILE])


def load_facts(
    tokenizer: Path | str | None, template: Path | None, note: Callable[[str], None] = lambda _: None
) -> TokenizerFacts:
    """Load a tokenizer and derive facts from it and its template.

    `note` is called with the commit that a name on the Hub resolves to.

    Raises:
        UsageError: a template without a tokenizer.
    """
    if tokenizer is None:
        if template is not None:
            raise UsageError(
                f"template {template}: it needs a tokenizer, which turns its texts into ids",
                hint="pass --tokenizer DIR, the tokenizer that the rows were made with",
            )
        return TokenizerFacts()
    pinned = pin_recipe(make_recipe({"tokenizer": str(tokenizer)}), note).tokenizer
    assert pinned is not None
    model = load_model(tokenizer_place(pinned), template=template)
    facts = facts_of(model)
    return facts if model.template is None else with_template_facts(facts, model, model.template)


def facts_of(model: Model) -> TokenizerFacts:
    """Return the facts of a tokenizer without a template."""
    backend = load_backend(model.files[TOKENIZER_FILE])
    markers = {token.id for token in model.added_tokens if not token.is_text}
    spaces = [
        token
        for piece, token in backend.get_vocab(with_added_tokens=True).items()
        if piece and token not in markers and (not piece.translate(_SPACES) or piece in {"<0x0A>", "<0x20>", "<0x09>"})
    ]
    bos = model.named_tokens.get("bos_token")
    return TokenizerFacts(
        model=model,
        stops=IdSet(model.stop_ids),
        spaces=IdSet(spaces),
        bos_id=None if bos is None else backend.token_to_id(bos),
        no_header="the tokenizer has no chat template: --template names one",
    )


def with_template_facts(facts: TokenizerFacts, model: Model, source: str) -> TokenizerFacts:
    """Add the facts of a template to those of its tokenizer."""
    template = compile_template(source, model, make_recipe({}))
    encoder = ReferenceEncoder(model.files[TOKENIZER_FILE])

    def ids(text: str) -> list[int]:
        return [int(i) for i in encoder.encode([text])[0]]

    try:
        prompt = _rendered(template, _QUESTION, prompt=True)
        plain = _rendered(template, _QUESTION, _ANSWER)
        chat = _rendered(template, _QUESTION, _ANSWER, _NEXT_QUESTION, _NEXT_ANSWER)
    except RenderError as error:
        return replace(facts, no_header=f"the template refuses a plain chat: {error}")
    before = [ids(_before(chat, _QUESTION)), ids(_before(chat, _NEXT_QUESTION)), ids(_system_prefix(template))]
    first, _, system = before
    # The text after a question, up to the start of a reasoning block.
    endings = [ids(_REASONING.split(_after(text, _QUESTION))[0]) for text in (prompt, chat, plain)]
    same = [group[0] for group in takewhile(lambda group: len({*group}) == 1, zip(*endings, strict=False))]
    control = {token.id for token in model.added_tokens if not token.is_text} | set(model.stop_ids)
    header = _distinct(same, [each for each in before if each], control)
    while header and header[-1] in facts.spaces.ids:
        header = header[:-1]
    chat_ids = ids(chat)
    words = [[token for token in each if token != facts.bos_id][:1] for each in (first, system)]
    # The BOS may be ChatML's marker, which the word `user` follows; rows are full of such words.
    openings = [*control.intersection(words[0] + words[1]), *first[:1], *system[:1]] if words[0] else []
    return replace(
        facts,
        header=np.array(header, np.int64),
        openings=IdSet(openings),
        bos_opens=chat_ids[:1] == [facts.bos_id] and chat_ids.count(chat_ids[0]) == 1,
        no_header="" if header else "no control token tells the header of an answer from that of a question",
    )


def _rendered(template: ChatTemplate, *said: str, prompt: bool = False) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
    return template.render(messages, add_generation_prompt=prompt)


def _system_prefix(template: ChatTemplate) -> str:
    """Return the text before the content of a system message; empty if the template does not support one."""
    said = (("system", _SYSTEM), ("user", _QUESTION), ("assistant", _ANSWER))
    try:
        text = template.render([{"role": role, "content": content} for role, content in said])
    except RenderError:
        return ""
    place = text.find(_SYSTEM)
    return text[:place] if 0 <= place < text.find(_QUESTION) else ""


def _before(text: str, content: str) -> str:
    return text[: max(text.find(content), 0)]


def _after(text: str, content: str) -> str:
    return text[text.find(content) + len(content) :] if content in text else ""


def _distinct(own: Sequence[int], others: Sequence[Sequence[int]], control: set[int]) -> list[int]:
    """Return the shortest suffix that contains a control token and is not a suffix of any other; empty if none is."""
    for size in range(1, len(own) + 1):
        tail = list(own[-size:])
        if control.intersection(tail) and all(list(other[-size:]) != tail for other in others):
            return tail
    return []
