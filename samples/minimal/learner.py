"""The learner: the next byte's distribution given the class of the byte before.

Logit of byte b after a byte of class c: bias[b] + table[c][b]; AdamW as the config says, the
learning rate exactly as the plan gives it. State is binary32, arithmetic binary64. All that a
sequence adds to the gradient are the counts of its (class, byte) pairs, so a step costs the same
few milliseconds at any batch size.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter

from contract.checkpoint import ArrayDigest
from contract.config import Optimizer
from contract.digest import digest_words, words_of

BYTES = 256
CLASSES = 32
"""Of the byte before, its low five bits: upper and lower case of a letter fall together."""
CLASS_OF = bytes(byte % CLASSES for byte in range(BYTES))

SIZES = {"bias": BYTES, "table": CLASSES * BYTES}
PARTS = ("value", "mean", "square")
GROUPS = {"bias": "other", "table": "matrix"}
"""Parameter group of each array, as plans name them."""

Pairs = Counter[tuple[int, int]]
Rates = Mapping[str, float]
"""Parameter group -> value."""


def to_binary32(value: float) -> float:
    """Return the nearest binary32 number; infinite where it is too large."""
    return array("f", [value])[0]


def count_pairs(sequences: Iterable[bytes]) -> Pairs:
    """Return how often each byte follows a byte of each class in sequences of length + 1."""
    pairs: Pairs = Counter()
    for text in sequences:
        pairs.update(zip(text[:-1].translate(CLASS_OF), text[1:], strict=True))
    return pairs


class Learner:
    """The parameters and the optimizer's state: six arrays."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._beta1, self._beta2 = float(optimizer.beta1), float(optimizer.beta2)
        self._epsilon = float(optimizer.epsilon)
        self.arrays = {
            f"{name}/{part}": array("f", bytes(4 * size))
            for name, size in SIZES.items()
            for part in PARTS
        }

    def gradient(self, pairs: Pairs) -> "array[float]":
        """Return [loss sum, gradient of bias, gradient of table] over the counted pairs."""
        by_class: dict[int, list[tuple[int, int]]] = {}
        for (row, byte), count in pairs.items():
            by_class.setdefault(row, []).append((byte, count))
        loss, bias = 0.0, [0.0] * BYTES
        table: list[float] = []
        for row in range(CLASSES):
            row_loss, gradient = self._row_gradient(row, sorted(by_class.get(row, ())))
            loss += row_loss
            table += gradient
            bias = [a + b for a, b in zip(bias, gradient, strict=True)]
        return array("d", [loss, *bias, *table])

    def _row_gradient(self, row: int, counts: list[tuple[int, int]]) -> tuple[float, list[float]]:
        """Return (sum of -log p, gradient of the row's logits).

        The exponentials are not shifted by their maximum: a sound model needs no shift, and one
        that an absurd learning rate blew up must show it as a loss that is not finite.
        """
        if not counts:
            return 0.0, [0.0] * BYTES
        bias, table = self.arrays["bias/value"], self.arrays["table/value"]
        start = row * BYTES
        logits = [a + b for a, b in zip(bias, table[start : start + BYTES], strict=True)]
        total = sum(map(itemgetter(1), counts))
        try:
            masses = list(map(math.exp, logits))
            mass = math.fsum(masses)
            loss = total * math.log(mass) - sum(count * logits[byte] for byte, count in counts)
            scale = total / mass
        except (OverflowError, ValueError, ZeroDivisionError):
            return math.inf, [math.inf] * BYTES
        gradient = [scale * value for value in masses]
        for byte, count in counts:
            gradient[byte] -= count
        return loss, gradient

    def loss(self, pairs: Pairs) -> float:
        """Return the sum of -log p over the counted pairs."""
        return self.gradient(pairs)[0]

    def update(self, gradient: "array[float]", step: int, rates: Rates, decays: Rates) -> None:
        """Apply one AdamW step; `gradient` is per token, laid out as `gradient()` returns it."""
        start = 1
        for name, size in SIZES.items():
            rate, decay = rates[GROUPS[name]], decays.get(GROUPS[name], 0.0)
            self._update_array(name, gradient[start : start + size], step, (rate, decay))
            start += size

    def _update_array(
        self, name: str, gradient: "array[float]", step: int, scales: tuple[float, float]
    ) -> None:
        rate, decay = scales
        beta1, beta2, epsilon = self._beta1, self._beta2, self._epsilon
        values, means, squares = (self.arrays[f"{name}/{part}"] for part in PARTS)
        fresh1, fresh2 = 1 - beta1, 1 - beta2
        means = array("f", [beta1 * m + fresh1 * g for m, g in zip(means, gradient, strict=True)])
        squares = array(
            "f", [beta2 * s + fresh2 * g * g for s, g in zip(squares, gradient, strict=True)]
        )
        rate_now = rate / (1 - beta1 ** (step + 1))
        unbias = 1 / (1 - beta2 ** (step + 1))
        keep, root = 1 - rate * decay, math.sqrt
        values = array(
            "f",
            [
                keep * v - rate_now * m / (root(unbias * s) + epsilon)
                for v, m, s in zip(values, means, squares, strict=True)
            ],
        )
        for part, new in zip(PARTS, (values, means, squares), strict=True):
            self.arrays[f"{name}/{part}"] = new

    # The state as bytes.

    def dump(self) -> dict[str, bytes]:
        """Return path -> little-endian binary32 bytes of every array of the state."""
        return {path: values.tobytes() for path, values in self.arrays.items()}

    def load(self, state: Mapping[str, bytes]) -> None:
        """Replace the state; `state` has the paths and sizes that `dump` returns."""
        for path, values in self.arrays.items():
            assert len(state[path]) == len(values) * values.itemsize, path
            self.arrays[path] = array("f", state[path])


def digest_state(state: Mapping[str, bytes]) -> list[ArrayDigest]:
    """Return the digest of each array of a dumped state."""
    digests: list[ArrayDigest] = []
    for path, data in sorted(state.items()):
        s0, s1 = digest_words(words_of(data, 4))
        digests.append(
            ArrayDigest(path=path, shape=[len(data) // 4], dtype="float32", s0=s0, s1=s1)
        )
    return digests


def gradient_norm(gradient: "array[float]") -> float:
    """Return the norm of what `gradient()` returns, without its first element, the loss."""
    return math.sqrt(sum(value * value for value in gradient[1:]))
