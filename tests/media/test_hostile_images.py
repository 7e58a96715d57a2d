"""Images made to take memory, time or other files, looked at under a limit of memory."""

import struct
import subprocess
import sys
import zlib

import pytest
from image_models import picture

EXAMINED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from packer.media.images import UnusableImageError, examine
for name in sys.argv[1:]:
    try:
        examine(open(name, "rb").read(), is_decoded=True)
        print("taken")
    except UnusableImageError as error:
        print(error.code)
"""


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, content: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def zeros(number: int) -> bytes:
    """So many zero bytes (two MiB or more) as zlib packs them: a block that was flushed is the same at every place."""
    packing, block = zlib.compressobj(), bytes(2**20)
    first, other = (packing.compress(block) + packing.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    end = packing.compress(bytes(number % 2**20)) + packing.flush()
    return first + other * (number // 2**20 - 1) + end[:-4] + struct.pack(">I", number % 65521 << 16 | 1)


def test_hostile_images_are_refused_within_a_gibibyte_of_memory(tmp_path):
    assert zlib.decompress(zeros(5 * 2**20 + 3)) == bytes(5 * 2**20 + 3)
    bomb, text = zeros(30_001 * 30_000), zeros(2**28)
    made = {
        "bomb.png": (png(30_000, 30_000, bomb), "media_too_large"),
        "lying.png": (png(4000, 3000, zlib.compress(b"0")), "media_unreadable"),
        "text.png": (picture(20, 20)[:33] + chunk(b"zTXt", b"a\0\0" + text) + picture(20, 20)[33:], "media_unreadable"),
        "page.ps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "media_unreadable"),
        "icon.ico": (b"\0\0\1\0\1\0\0\0\0\0\1\0\x20\0\xff\xff\xff\x7f\x16\0\0\0", "media_unreadable"),
        "nothing.jpg": (b"", "media_unreadable"),
        "large.jpg": (picture(30, 30, format="JPEG") + bytes(64 * 2**20), "media_too_large"),
        "good.png": (picture(30, 30), "taken"),
    }
    for name, (content, _) in made.items():
        (tmp_path / name).write_bytes(content)
    found = subprocess.run(
        [sys.executable, "-c", EXAMINED, *(str(tmp_path / name) for name in made)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.split() == [code for _, code in made.values()]


def test_a_stored_bomb_is_not_decoded_by_what_reads_a_cache():
    from packer.media.images import UnusableImageError, decode, thumbnail

    bomb = png(12_000, 6_000, zeros(36_001 * 6_000))  # Pillow itself would decode so many
    assert thumbnail(bomb) is None
    with pytest.raises(UnusableImageError, match="12000 x 6000 pixels; packer takes up to 64,000,000"):
        decode(bomb)


def test_reasons_do_not_depend_on_the_process(tmp_path):
    from packer.media.images import UnusableImageError, examine

    with pytest.raises(UnusableImageError) as told:
        examine(b"<html>", is_decoded=True)
    assert "0x" not in told.value.reason
