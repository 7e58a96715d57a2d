"""The process that downloads what :mod:`packer.store.forked` asks for."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from packer.errors import PackerError
from packer.store.bucket import CONNECTIONS
from packer.store.forked import DownloadRequest
from packer.store.mirror import mirror_of


def _answer(request: DownloadRequest) -> None:
    mirror = mirror_of(Path(request.folder))
    assert mirror is not None, "the folder is the mirror of a bucket"
    if request.fetch is not None:
        mirror.fetch(request.fetch)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for parts in pool.map(lambda each: mirror.bucket.read_ranges(*each), request.ranges):
            sys.stdout.buffer.writelines(parts)


if __name__ == "__main__":
    try:
        _answer(msgspec.json.decode(sys.stdin.buffer.read(), type=DownloadRequest))
    except PackerError as error:
        sys.exit(error.message)
