"""The process that downloads what :mod:`packer.store.forked` asks for."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from packer.errors import PackerError
from packer.store.bucket import CONNECTIONS, Bucket
from packer.store.forked import DownloadRequest
from packer.store.mirror import Mirror


def _answer(request: DownloadRequest) -> None:
    mirror = Mirror(Path(request.folder), Bucket(request.url))
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
