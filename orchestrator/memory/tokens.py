"""How many tokens a text has, before a model has said so.

An estimate only has to be right until the first reply: from then on the reported input of the last request is the
base, and only what was added since is estimated.
"""

ASCII_BYTES_PER_TOKEN = 3.5
OTHER_BYTES_PER_TOKEN = 2.6
"""English and JSON have 3.5 to 4.5 bytes a token, Chinese three (a character): these are on the safe side."""

IMAGE_TOKENS = 1600
"""An image of 1.2 megapixels at Anthropic, about the most that vendors count: they scale larger ones down."""

MESSAGE_OVERHEAD = 4
REQUEST_OVERHEAD = 48
"""What a request has beside its messages and tools: its settings, and the template that a model wraps around it."""


def estimate(encoded: bytes) -> int:
    """Tokens of UTF-8 text, rounded up."""
    ascii_bytes = len(encoded) - _beyond_ascii(encoded)
    return int(ascii_bytes / ASCII_BYTES_PER_TOKEN + _beyond_ascii(encoded) / OTHER_BYTES_PER_TOKEN) + MESSAGE_OVERHEAD


def _beyond_ascii(encoded: bytes) -> int:
    return 0 if encoded.isascii() else len(encoded) - len(encoded.translate(None, _HIGH))


_HIGH = bytes(range(128, 256))
