"""A file with one bit that is another."""


def flip(path, place=None, mask=1):
    """Flip a bit of the byte at a place, or in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= mask
    path.write_bytes(content)
