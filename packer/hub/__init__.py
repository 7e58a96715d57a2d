"""Tokenizers, datasets and caches on the Hugging Face Hub.

A revision is resolved to a commit once, and used in that form from then on: a recipe with a commit in it always means
the same bytes, and needs no network once they are cached. `huggingface_hub` is imported only when a name refers to the
Hub.
"""

from packer.hub.fetch import fetch_data, fetch_tokenizer, pin, snapshot
from packer.hub.names import SCHEME, HubName, data_name, may_be_repository, tokenizer_name

__all__ = [
    "SCHEME",
    "HubName",
    "data_name",
    "fetch_data",
    "fetch_tokenizer",
    "may_be_repository",
    "pin",
    "snapshot",
    "tokenizer_name",
]
