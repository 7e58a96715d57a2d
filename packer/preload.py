"""What the server process imports and loads that workers are forked from.

An environment variable names the tokenizer, since the server is there before anything else is known. The encoder is
loaded by a thread that lets others run, so importing packer costs nothing beside it.
"""

import gc
import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path

TOKENIZER = "PACKER_PRELOAD"
"""Variable that names the tokenizer."""


def asked(tokenizer: Path | None, *, fast: bool) -> str:
    """The value of :data:`TOKENIZER`: whether the fast engine is wanted, and the place."""
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
