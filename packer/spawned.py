"""How a process begins that was spawned: with what takes longest, before it has imported the rest.

What names this module is unpickled with next to no imports. The encoder is loaded by a thread that lets others run, so
importing all of packer costs nothing beside it.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any


def begin(warm: Callable[[], threading.Thread | None] | None, module: str, name: str, **arguments: Any) -> None:
    """Call `warm`, then a function of a module with what may go on loading, and with arguments.

    Whatever `warm` raises is left to whoever needs what it loads. The process leads a group of its own, so that it can
    be ended with all that it forks.
    """
    with suppress(OSError):
        os.setpgid(0, 0)
    loading: threading.Thread | None = None
    if warm is not None:
        with suppress(BaseException):  # a panic of Rust is no Exception
            loading = warm()
    getattr(import_module(module), name)(loading, **arguments)
