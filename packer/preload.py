"""What the fork server imports and loads before workers are forked from it.

An environment variable says what, as the server starts before anything else is known. The fast encoder is loaded in a
thread: `fastokens` releases the GIL, so the imports of packer run meanwhile. No template of a user runs here: nothing
would stop one that does not end.
"""

import gc
import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path

WANTED = "PACKER_PRELOAD"
"""Environment variable: the engine of the recipe, a colon, and the path of the tokenizer; empty if only modules are to
be imported."""


def _load(wanted: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    engine, _, place = wanted.partition(":")
    loading = None
    with suppress(BaseException):  # a worker meets it again, a panic of Rust too
        if place:
            loading = import_module("packer.backend").warm_up(Path(place), engine=engine)
    import_module("packer.pipeline")
    with suppress(BaseException):  # as above
        if place:
            import_module("packer.pipeline.stages").warm_up(Path(place))
    if loading is not None:
        loading.join()
    gc.freeze()  # a collection would write to every page that is shared


if (_wanted := os.environ.pop(WANTED, None)) is not None:
    _load(_wanted)
