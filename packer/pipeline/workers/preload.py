"""What the fork server imports and loads before workers are forked from it.

An environment variable says what, as the server starts before anything else is known. The fast encoder is loaded in a
thread, and the imports of packer run meanwhile, as far as the library releases the GIL. No template of a user runs
here: nothing would stop one that does not end.
"""

import gc
import importlib
import os
import signal
from contextlib import suppress
from pathlib import Path

from packer.pipeline.workers.fork_server import IMAGES, WANTED


def _load(wanted: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    engine, _, place = wanted.partition(":")
    loading, content = None, b""
    engine, images = engine.removesuffix(IMAGES), engine.endswith(IMAGES)
    with suppress(BaseException):  # a worker meets it again, a panic of Rust too
        if place:
            from packer.model import backend  # noqa: PLC0415 - once Ctrl-C is ignored

            content = backend.read_tokenizer(Path(place))
            loading = backend.load_fast_meanwhile(engine, content)
            if loading is None:
                backend.load_backend(content)
    from packer.model.token_bytes import read_vocabulary  # noqa: PLC0415 - as above
    from packer.pipeline import blocks, partition  # noqa: F401, PLC0415 - while the encoder loads

    with suppress(BaseException):  # as above
        read_vocabulary(content)
        if images:
            importlib.import_module("transformers.processing_utils")
    if loading is not None:
        loading.join()


if (_wanted := os.environ.pop(WANTED, None)) is not None:
    gc.disable()  # nothing that is loaded is garbage
    try:
        _load(_wanted)
    finally:
        gc.freeze()  # a collection would write to every page that is shared
        gc.enable()
