"""How many tokens a model makes of a text: countable parts of it, a weight for each, and learning from what it reports.

Tokenizers differ by twice in Chinese and in digits and by little in English, so one set of numbers is not right for all
of them. Eight weights are, once they have been corrected by a few reported inputs. Parts are counted by a few passes in
C, about 6 ns a byte, once for each message; what changes with the weights is a sum of eight products.
"""

import string
from collections.abc import Sequence

Counts = tuple[int, ...]
"""Of a text: words, six letters of one word, digits, runs of digits, Chinese, Japanese and Korean characters, other
characters beyond ASCII, signs, line ends. Texts that follow each other have the sum of their counts."""

Weights = tuple[float, ...]
"""Tokens for each of the counts."""

FRESH: Weights = (0.96, 0.38, 0.6, 0.4, 0.75, 1.5, 0.5, 1.4)
"""Before a model has reported anything: the middle of cl100k, DeepSeek's and Qwen's tokenizers. For Chinese these have
0.5 to 1.2 tokens a character, for digits 0.4 to 1."""

NOTHING: Counts = (0,) * len(FRESH)

_DOUBT: Weights = (0.04, 0.05, 0.25, 0.2, 0.3, 0.4, 0.05, 0.1)
"""How far tokenizers lie from each other in each weight: what they differ in is learned first."""

_NOISE, _WRAPPING = 0.08, 6
"""How far a text's tokens lie from its counts in any weights, by the share and in tokens: within that nothing is
learned."""

_MOST = 2.5
"""A report that is off by more than this factor is of something else: a prompt cut off, thinking that was dropped."""

_LETTERS, _DIGITS = string.ascii_letters.encode(), string.digits.encode()
_SIGNS = bytes(b for b in range(128) if b not in _LETTERS + _DIGITS + b" \t\r\n\\")
_CJK = bytes([*range(0xE3, 0xEE), 0xEF])  # the first of a character's three bytes
_OTHER = bytes([*range(0xC0, 0xE3), 0xEE, *range(0xF0, 0x100)])


def _kept(kept: bytes) -> bytes:
    """What `translate` deletes so that these bytes are left."""
    return bytes(b for b in range(256) if b not in kept)


_BUT_DIGITS, _BUT_SIGNS, _BUT_CJK, _BUT_OTHER = map(_kept, (_DIGITS, _SIGNS, _CJK, _OTHER))
_AS_WORDS = bytes(ord("a") if b in _LETTERS else ord(" ") for b in range(256))
_AS_DIGITS = bytes(ord("0") if b in _DIGITS else ord(" ") for b in range(256))


def count(text: bytes) -> Counts:
    """The counts of UTF-8 text, or of JSON in which it stands: escapes are counted as what they stand for."""
    if b"\\" in text:
        text = text.replace(b"\\n", b"\n").replace(b"\\t", b"\t")
    words = (b" " + text).translate(_AS_WORDS)
    digits = len(text.translate(None, _BUT_DIGITS))
    beyond = not text.isascii()
    return (
        words.count(b" a"),
        words.count(b"a" * 6) + 20 * words.count(b"a" * 24),  # no word is so long: a key, a hash, base64
        digits,
        (b" " + text).translate(_AS_DIGITS).count(b" 0") if digits else 0,
        len(text.translate(None, _BUT_CJK)) if beyond else 0,
        len(text.translate(None, _BUT_OTHER)) if beyond else 0,
        len(text.translate(None, _BUT_SIGNS)) + 2 * text.count(b" " * 16) + 2 * text.count(b"\t" * 8),
        text.count(b"\n"),
    )


def added(*counts: Sequence[int]) -> Counts:
    """The counts of texts that follow each other."""
    return tuple(map(sum, zip(NOTHING, *counts, strict=True)))


def tokens(counts: Counts, weights: Weights = FRESH) -> int:
    """Rounded up, so that no word counts as nothing. Weights of another make than ours are not used."""
    if len(weights) != len(counts):
        weights = FRESH
    return -int(-_product(weights, counts) // 1)


def _product(weights: Sequence[float], counts: Counts) -> float:
    return sum([weight * number for weight, number in zip(weights, counts, strict=True)])


class Tally:
    """What is known of how one model counts, for as long as the process lives; shared by all runs that ask it.

    Each weight is corrected by its part in a wrong estimate and by how much it is in doubt, and is in less doubt
    afterwards: a Kalman filter that leaves the weights' covariances out.
    """

    def __init__(self) -> None:
        self.weights: Weights = FRESH
        self._doubt = [doubt * doubt for doubt in _DOUBT]

    def recall(self, weights: Weights) -> None:
        """Takes over what a run had learned in another process, where nothing is known here yet."""
        if self.weights == FRESH and len(weights) == len(FRESH):
            self.weights = weights

    def learn(self, counts: Counts, reported: int) -> Weights:
        """The weights after the model has counted a text of these counts as so many tokens."""
        estimate, noise = tokens(counts, self.weights), _NOISE * reported + _WRAPPING
        off = reported - estimate
        if abs(off) <= noise or not estimate / _MOST <= reported <= estimate * _MOST:
            return self.weights
        pulls = [doubt * number for doubt, number in zip(self._doubt, counts, strict=True)]
        spread = _product(pulls, counts) + noise * noise
        self._doubt = [d * (1 - pull * n / spread) for d, pull, n in zip(self._doubt, pulls, counts, strict=True)]
        moved = [w + pull / spread * off for w, pull in zip(self.weights, pulls, strict=True)]
        self.weights = tuple(round(max(0.0, weight), 4) for weight in moved)
        return self.weights
