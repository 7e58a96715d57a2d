"""A folder beside what is made in it, so that nobody sees it half made. What a killed process left there goes away."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from packer.host.files import storage_errors
from packer.store.folder import TEMPORARY_PREFIX, alone_in, is_real, lock, make_folder, refuse_busy


@contextmanager
def work_folder(beside: Path) -> Iterator[Path]:
    """Make a folder beside a path to work in, for this process alone; it is removed with the context.

    Its name begins with a digest of the path's, so that what killed processes left for the same path is found and
    removed, and ends at random.
    """
    digest = hashlib.sha256(os.fsencode(beside.name)).hexdigest()[:12]  # short, however long the name is
    prefix = f"{TEMPORARY_PREFIX}{digest}-"
    with ExitStack() as held:
        with storage_errors("write", beside):
            make_folder(beside.parent)
            with alone_in(beside.parent):
                for left in [path for path in beside.parent.iterdir() if path.name.startswith(prefix)]:
                    if is_real(left):
                        refuse_busy(left)
                        with suppress(RecursionError):  # before Python 3.13, of a thousand levels
                            shutil.rmtree(left, ignore_errors=True)
                work = Path(tempfile.mkdtemp(prefix=prefix, dir=beside.parent))
                held.callback(shutil.rmtree, work, ignore_errors=True)
                held.enter_context(lock(work))
        yield work
