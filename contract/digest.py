"""The digest of an array, in plain Python: the reference for every faster form."""

from collections.abc import Iterable

MODULUS = 2**32


def digest_words(words: Iterable[int]) -> tuple[int, int]:
    """Return (s0, s1) of the elements' words: sum w_i and sum w_i (2i + 1), mod 2**32.

    Any one changed word moves s0, nearly any exchange of two moves s1.
    """
    s0 = s1 = 0
    for index, word in enumerate(words):
        s0 += word
        s1 += word * (2 * index + 1)
    return s0 % MODULUS, s1 % MODULUS


def words_of(data: bytes, item_bytes: int) -> Iterable[int]:
    """Yield the words of little-endian elements of 1, 2, 4 or 8 bytes (8: two words, low first)."""
    assert item_bytes in (1, 2, 4, 8)
    step = min(item_bytes, 4)
    for start in range(0, len(data), step):
        yield int.from_bytes(data[start : start + step], "little")
