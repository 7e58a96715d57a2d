"""The keyed permutation: a shuffle of ``range(n)`` that needs no table and can be asked at any place.

A number is split into a pair (l, r) of Z_a × Z_b with a·b ≥ n, and six rounds add to each half in turn a hash of the
other: l ← l + F₀(r) mod a, r ← r + F₁(l) mod b, and so on. Every round can be undone, so all six are a bijection on
range(a·b). A result outside range(n) is sent through again until it falls inside, which gives a bijection on range(n);
a and b are close to √n, so that about one number in √n needs this, or fewer.

Worked example: for n = 10, a = 4 and b = 3; 7 is the pair (3, 1), as 7 = 3 + 4·1. If the rounds lead to (2, 2), that is
2 + 4·2 = 10, outside; from (2, 2) they may lead to (1, 0), and the image of 7 is 1.

This is the generalized Feistel network with cycle walking of Black and Rogaway, "Ciphers with Arbitrary Finite Domains"
(CT-RSA 2002). The hash is the output function of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
Number Generators", OOPSLA 2014) of the half plus the round's key. It is a shuffle, not a cipher: it keeps no secret.
"""

from math import isqrt

import numpy as np
import numpy.typing as npt
import xxhash

from packer.batches import Int64, UInt64

MAX_N = 2**62
NUM_ROUNDS = 6

_SLICE = 16_384  # numbers at a time: the two halves and two work arrays, 512 KiB, stay in the cache
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def permutation_key(*parts: int | str) -> UInt64:
    """Round keys that are a pure function of the parts, on every platform.  # uint64[6]

    Parts of another value, type, order or number give other keys: each is written with its type and its length, so
    ``("a", "b")`` and ``("ab",)`` differ, and so do ``1`` and ``"1"``.
    """
    encoded = b"".join(_encode(part) for part in parts)
    return np.array([xxhash.xxh3_64_intdigest(encoded, seed=number) for number in range(NUM_ROUNDS)], np.uint64)


def permute(index: npt.NDArray[np.integer], n: int, key: UInt64) -> Int64:
    """The images of ``index`` under the permutation of ``range(n)`` that ``key`` names.

    Args:
        index: numbers in ``range(n)``, of any shape.
        n: size of the domain, 1 to 2^62.
        key: from :func:`permutation_key`.

    Example:
        >>> sorted(permute(np.arange(5), 5, permutation_key("example", 7)).tolist())
        [0, 1, 2, 3, 4]

    Raises:
        ValueError: n out of range, an index that is not an integer in ``range(n)``, a key of another shape.
    """
    _check(index, n, key)
    image: Int64 = np.array(index, np.int64)
    flat = image.reshape(-1)
    a = isqrt(n - 1) + 1
    b = -(-n // a)
    for first in range(0, flat.size, _SLICE):
        part = flat[first : first + _SLICE]
        part[:] = _rounds(part, a, b, key)
        outside = np.flatnonzero(part >= n)
        while outside.size:
            part[outside] = _rounds(part[outside], a, b, key)
            outside = outside[part[outside] >= n]
    return image


def _encode(part: int | str) -> bytes:
    text = str(part).encode()
    return b"%s%d:%s" % (b"s" if isinstance(part, str) else b"i", len(text), text)


def _check(index: npt.NDArray[np.integer], n: int, key: UInt64) -> None:
    if not 1 <= n <= MAX_N:
        raise ValueError(f"n is {n}; expected 1 to 2^62")
    if key.shape != (NUM_ROUNDS,) or key.dtype != np.uint64:
        raise ValueError(f"key is {key.dtype}{list(key.shape)}; expected uint64[{NUM_ROUNDS}] of permutation_key")
    if index.dtype.kind not in "iu":
        raise ValueError(f"index is {index.dtype}; expected integers")
    if index.size and (int(index.min()) < 0 or int(index.max()) >= n):
        raise ValueError(f"index runs from {index.min()} to {index.max()}; expected numbers in range({n})")


def _rounds(numbers: Int64, a: int, b: int, key: UInt64) -> UInt64:
    whole = numbers.astype(np.uint64)
    right = whole // np.uint64(a)
    left = whole - right * np.uint64(a)
    addend, work = np.empty_like(whole), np.empty_like(whole)
    for number in range(NUM_ROUNDS):
        half, other, modulus = (left, right, a) if number % 2 == 0 else (right, left, b)
        _hash_below(other, key[number], modulus, addend, work)
        half += addend
        # A sum is at most 2·modulus - 1. Where it is below modulus, the difference wraps to a huge number.
        np.subtract(half, np.uint64(modulus), out=work)
        np.minimum(half, work, out=half)
    right *= np.uint64(a)
    right += left
    return right


def _hash_below(value: UInt64, key: np.uint64, bound: int, out: UInt64, work: UInt64) -> None:
    """Write ``floor(h · bound / 2^32)``, a number below ``bound``, with h the high half of splitmix64's output.

    The product fits: h < 2^32 and bound ≤ 2^31. It stands for a remainder, which numpy computes several times slower.
    """
    np.add(value, key, out=out)
    for shift, multiplier in ((30, _MULTIPLIER_1), (27, _MULTIPLIER_2)):
        np.right_shift(out, np.uint64(shift), out=work)
        np.bitwise_xor(out, work, out=out)
        np.multiply(out, multiplier, out=out)
    np.right_shift(out, np.uint64(31), out=work)
    np.bitwise_xor(out, work, out=out)
    np.right_shift(out, np.uint64(32), out=out)
    np.multiply(out, np.uint64(bound), out=out)
    np.right_shift(out, np.uint64(32), out=out)
