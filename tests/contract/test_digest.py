import struct

from hypothesis import given
from hypothesis import strategies as st

from contract.digest import MODULUS, digest_words, words_of

words = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64)


@given(words, st.data())
def test_any_one_changed_word_moves_the_first_sum(values, data):
    index = data.draw(st.integers(0, len(values) - 1))
    changed = list(values)
    changed[index] = (changed[index] + data.draw(st.integers(1, 2**32 - 1))) % MODULUS
    assert digest_words(changed)[0] != digest_words(values)[0]


@given(words, st.data())
def test_exchange_of_two_words_moves_the_second_sum_except_by_their_common_factors(values, data):
    left = data.draw(st.integers(0, len(values) - 1))
    right = data.draw(st.integers(0, len(values) - 1))
    swapped = list(values)
    swapped[left], swapped[right] = swapped[right], swapped[left]
    moved = 2 * (values[left] - values[right]) * (left - right) % MODULUS
    assert (digest_words(swapped) != digest_words(values)) == bool(moved)


@given(words, st.integers(0, 64))
def test_sums_add_over_any_partition(values, cut):
    left = digest_words(values[:cut])
    # The second part with its global indices, as another device would sum it.
    rest = [(i, word) for i, word in enumerate(values) if i >= cut]
    s0 = (left[0] + sum(word for _, word in rest)) % MODULUS
    s1 = (left[1] + sum(word * (2 * i + 1) for i, word in rest)) % MODULUS
    assert (s0, s1) == digest_words(values)


@given(st.lists(st.floats(width=32), max_size=16))
def test_words_of_binary32_are_its_bits(values):
    data = struct.pack(f"<{len(values)}f", *values)
    assert list(words_of(data, 4)) == list(struct.unpack(f"<{len(values)}I", data))


def test_words_are_zero_extended_and_64_bits_make_two_low_first():
    assert list(words_of(b"\xff\x01", 1)) == [255, 1]
    assert list(words_of(b"\x01\x02\xff\xff", 2)) == [0x0201, 0xFFFF]
    assert list(words_of(struct.pack("<Q", 2**32 + 5), 8)) == [5, 1]
