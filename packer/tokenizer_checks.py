"""Whether the ids of a `tokenizer.json` can be relied on: the same text always gets the same ids, each its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from packer.errors import InputError

MAX_IDS = 2**24
"""Tables here have an entry an id; the largest vocabularies of language models have a fiftieth of this."""


def checked_vocab_size(definition: Mapping[str, Any], backend: Tokenizer, where: Path) -> int:
    """One more than the largest id, of a `tokenizer.json` whose ids can be relied on.

    Raises:
        InputError: it gives other ids every time, loses text, moves ids or gives one id twice.

    """
    _refuse_dropout(definition, where)
    _refuse_lost_text(definition.get("post_processor"), where)
    written = definition["model"].get("vocab")
    if isinstance(written, dict):  # what the backend would say, without waiting for it to say it
        added = backend.get_added_tokens_decoder()
        vocabulary: dict[str, int] = {**written, **{token.content: token_id for token_id, token in added.items()}}
    else:
        vocabulary = backend.get_vocab(with_added_tokens=True)
    ids = set(vocabulary.values())
    if not ids:
        raise InputError(f"tokenizer {where}: tokenizer.json has no tokens")
    if max(ids) >= MAX_IDS:
        raise InputError(
            f"tokenizer {where}: tokenizer.json has the id {max(ids)} among {len(ids)} tokens; "
            f"packer takes ids below {MAX_IDS}"
        )
    if len(ids) < len(vocabulary):
        seen: dict[int, str] = {}
        first, second, shared = next(
            (seen[i], token, i) for token, i in sorted(vocabulary.items()) if seen.setdefault(i, token) != token
        )
        raise InputError(
            f"tokenizer {where}: tokenizer.json gives '{first[:40]}' and '{second[:40]}' the same id {shared}",
            hint="a token has an id of its own; take the tokenizer.json its makers published",
        )
    _refuse_moved_ids(definition, backend, where)
    return max(ids) + 1


def _refuse_dropout(definition: Mapping[str, Any], where: Path) -> None:
    """BPE dropout is not a setting of `encode` but part of the file, and no part of the text's ids can be relied on."""
    dropout = definition["model"].get("dropout")
    if dropout:
        raise InputError(
            f"tokenizer {where}: tokenizer.json has a dropout of {dropout}: the same text gets other ids every time",
            hint="set model.dropout to null in tokenizer.json; dropout is for training, inference runs without it",
        )


def _refuse_lost_text(post_processor: Any, where: Path) -> None:
    """A template of a post-processor decides what is left of a text, even where no special tokens are asked for."""
    if not isinstance(post_processor, dict):
        return
    for member in post_processor.get("processors") or ():
        _refuse_lost_text(member, where)
    if post_processor.get("type") != "TemplateProcessing":
        return
    if sum("Sequence" in piece for piece in post_processor["single"]) != 1:
        raise InputError(
            f"tokenizer {where}: the post_processor of tokenizer.json does not write a text exactly once",
            hint="its template `single` must hold one Sequence",
        )


def _refuse_moved_ids(definition: Mapping[str, Any], backend: Tokenizer, where: Path) -> None:
    """`tokenizers` numbers added tokens on from the vocabulary, without a word where the file says otherwise."""
    for token in definition.get("added_tokens") or ():
        given = backend.token_to_id(token["content"])
        if token["content"] and given != token["id"]:
            raise InputError(
                f"tokenizer {where}: tokenizer.json gives the added token '{token['content']}' id {token['id']}, "
                f"but tokenizers reads it as {given}",
                hint="ids of added tokens must go on from the vocabulary without a gap and without a repeat",
            )
