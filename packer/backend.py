"""The `tokenizers` object of a `tokenizer.json`, and the file as JSON: loaded once in a process, whoever asks."""

import functools
import json
from typing import Any

from tokenizers import Tokenizer


@functools.lru_cache(maxsize=4)
def load_backend(model_json: bytes) -> Tokenizer:
    """The `tokenizers` object of a `tokenizer.json`, shared: loading a large one takes half a second.

    Truncation and padding are off, whatever the file says: packer never truncates silently. `Model.neutralised` names
    what was on.
    """
    backend = Tokenizer.from_str(model_json.decode())
    backend.no_truncation()
    backend.no_padding()
    return backend


@functools.lru_cache(maxsize=2)
def definition_of(model_json: bytes) -> dict[str, Any]:
    """A `tokenizer.json` as JSON, shared: whoever changes something in it makes a copy first."""
    definition: dict[str, Any] = json.loads(model_json)
    return definition


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of the Rust code of `tokenizers`, which Python does not count among exceptions."""
    return type(error).__name__ == "PanicException"
