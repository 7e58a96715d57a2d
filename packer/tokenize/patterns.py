"""Regular expressions of a tokenizer that run away: tried before a build on short texts made to provoke them.

An expression like ``(a+)+$`` needs twice as many steps for every further letter. `tokenizers` gives up on a match after
ten million steps, so that one costs a tenth of a second, and a text has many places to begin one. Here every
expression meets runs of forty: of each character and each word it is written with, and of some of every kind. One
that gives up on forty characters is no tokenizer's.

That finds what grows exponentially. What grows with the square of a text's length is left to
:mod:`packer.tokenize.deadline`.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer

from packer.backend import definition_of
from packer.errors import InputError
from packer.tokenize.deadline import encode_in_time
from packer.tokenize.reference_encoder import is_about_a_text

_RUN = 40
_PATIENCE_S = 5.0
"""For all trials of an expression; those of published tokenizers take some milliseconds."""

_KINDS = 'aA0_ \n\té中\u0301!."'
_ENDS = ("", "!", "\0", "a ")
_MAX_CHARACTERS = 200
"""Characters of an expression that are tried; the longest of published tokenizers have fewer different ones."""


def refuse_runaway_patterns(tokenizer_json: bytes) -> None:
    """Try every regular expression of a tokenizer.

    Raises:
        InputError: one runs away; names it.

    """
    definition = definition_of(tokenizer_json)
    parts = [definition.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    for pattern in dict.fromkeys(_patterns(parts)):
        if _runs_away(pattern):
            raise InputError(
                f"tokenizer: the regular expression {pattern[:200]!r} in tokenizer.json runs away: "
                f"for {_RUN} repeated characters it needs more than ten million steps",
                hint="nested repetitions such as (a+)+ do that; take the tokenizer.json its makers published",
            )


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("Regex"), str):
            yield value["Regex"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _patterns(item)


@lru_cache(maxsize=64)
def _runs_away(pattern: str) -> bool:
    """Whether the expression gives up on one of the trials."""
    alone = {
        "model": {"type": "BPE", "vocab": {}, "merges": []},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
    }
    backend = Tokenizer.from_str(json.dumps(alone))
    texts = list(_trials(pattern))

    def encode_all() -> None:
        for text in texts:  # one by one: the first that fails is enough
            backend.encode_batch_fast([text], add_special_tokens=False)

    try:
        encode_in_time(encode_all, [], grace_s=_PATIENCE_S)
    except InputError:
        return True
    except BaseException as error:
        if not is_about_a_text(error):
            raise
        return True
    return False


def _trials(pattern: str) -> Iterator[str]:
    words = re.findall(r"\w{2,12}", pattern)
    pairs = [first + second for first, second in pairwise(pattern)]
    # A character the expression must come to, and cannot: without it, some expressions are not even begun.
    ends = (*_ENDS, " " + "".join(dict.fromkeys(pattern)))
    for unit in list(dict.fromkeys([*_KINDS, *pattern, *words, *pairs]))[:_MAX_CHARACTERS]:
        yield from (unit * _RUN + end for end in ends)
