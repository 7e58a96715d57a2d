"""Where two texts part."""


def common_length(a: str, b: str) -> int:
    """How many characters two texts have in common from their start; halves the rest instead of walking it."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
