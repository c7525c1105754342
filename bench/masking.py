"""Time to mask hostile text, by its length: sixteen times the text may take about sixteen times as long.

    .venv/bin/python -m bench.masking
"""

import time

from orchestrator.masking import mask
from tests.masking.pieces import HOSTILE


def seconds(piece, length):
    text = (piece * (length // len(piece) + 1))[:length] + "\n"
    began = time.thread_time()
    mask(text)
    return time.thread_time() - began


for piece in HOSTILE:
    short, long = (min(seconds(piece, length) for _ in range(5)) for length in (4_000, 64_000))
    print(f"{piece!r:36} {1e3 * short:8.2f} ms for 4,000  {1e3 * long:8.2f} ms for 64,000  {long / short:6.1f}x")
