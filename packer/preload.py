"""What the fork server imports and loads before workers are forked from it.

An environment variable names the tokenizer, as the server starts before anything else is known. The encoder is loaded
in a thread that releases the GIL, so the imports of packer run meanwhile.
"""

import gc
import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path

TOKENIZER = "PACKER_PRELOAD"
"""Environment variable that names the tokenizer."""


def preload_value(tokenizer: Path | None, *, fast: bool) -> str:
    """Return the value for :data:`TOKENIZER`: the tokenizer's path and whether the fast engine is needed."""
    return "" if tokenizer is None else f"{int(fast)}{tokenizer}"


def _load(wanted: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    loading = None
    with suppress(BaseException):  # a worker meets it again, a panic of Rust too
        if wanted:
            backend = import_module("packer.backend")
            loading = backend.warm_up(Path(wanted[1:]), fast=wanted[0] == "1")
    import_module("packer.pipeline")
    with suppress(BaseException):  # as above
        if wanted:
            place = Path(wanted[1:])
            import_module("packer.token_bytes").TokenBytes(import_module("packer.model").load_model(place))
    if loading is not None:
        loading.join()
    gc.freeze()  # a collection would write to every page that is shared


if (_wanted := os.environ.get(TOKENIZER)) is not None:
    _load(_wanted)
