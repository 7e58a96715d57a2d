"""Tokenizers, data sets and caches of the Hugging Face Hub.

A revision is resolved once, to a commit, and goes on under that name: a recipe with a commit in it always means the
same bytes, and asks for no network once they are in the cache. `huggingface_hub` is imported where a name leads to
the Hub, and nowhere else.
"""

from packer.hub.fetch import fetch_data, fetch_tokenizer, listed, pin, snapshot
from packer.hub.names import SCHEME, HubName, data_name, may_be_repository, tokenizer_name

__all__ = [
    "SCHEME",
    "HubName",
    "data_name",
    "fetch_data",
    "fetch_tokenizer",
    "listed",
    "may_be_repository",
    "pin",
    "snapshot",
    "tokenizer_name",
]
