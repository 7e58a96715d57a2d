"""An object of a bucket as a file, of which only what is read is downloaded."""

import os

from packer.store.bucket import Bucket


class BucketFile:
    """An object as a file, for libraries that read parts of one. Keeps what it downloaded; not thread-safe."""

    _BLOCK_BYTES = 2**17

    def __init__(self, bucket: Bucket, name: str, num_bytes: int) -> None:
        self._bucket, self._name, self._num_bytes = bucket, name, num_bytes
        self._blocks: dict[int, bytes] = {}
        self._place = 0
        self.closed = False

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._num_bytes}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or all up to the end.

        Raises:
            CheckError: there is no such object, or it ends before them.
        """
        first, whole = self._place, self._BLOCK_BYTES
        end = self._num_bytes if size < 0 else min(first + size, self._num_bytes)
        numbers = range(first // whole, -(-end // whole)) if first < end else range(0)
        missing = [number for number in numbers if number not in self._blocks]
        if missing:  # neighbors are one request
            ranges = [(number * whole, min(whole, self._num_bytes - number * whole)) for number in missing]
            self._blocks.update(zip(missing, self._bucket.read_ranges(self._name, ranges), strict=True))
        content = b"".join(self._blocks[number] for number in numbers)
        self._place = max(first, end)
        return content[first % whole : first % whole + end - first] if numbers else b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
