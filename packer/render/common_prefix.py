"""The common prefix of two texts."""


def common_length(a: str, b: str) -> int:
    """Return the length of the common prefix of two texts, by bisection rather than character by character."""
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
