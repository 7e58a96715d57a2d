"""Which modules of packer a piece of work enters: how many files somebody reads to follow it."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packer

_ROOT = str(Path(packer.__file__).parent)


def modules_entered(work: Callable[[], Any]) -> set[str]:
    """Return the modules whose functions `work` calls, in any thread that it starts: ``load/loader.py``.

    Bodies of modules and of classes do not count: what is imported is not yet used.
    """
    codes = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    of_packer = (code for code in codes if code.co_filename.startswith(_ROOT) and code.co_name != "<module>")
    return {str(Path(code.co_filename).relative_to(_ROOT)) for code in of_packer}
