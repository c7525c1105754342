"""Ids of traces and spans.

From a generator of their own, seeded by the system: ids that come from `random` itself, as the SDK's do, repeat in
every process that seeds it, and asking the system each time costs as much as all the rest of a span's start.
"""

import os
import random

_random = random.Random()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def new_trace_id() -> int:
    return _random.getrandbits(128) or 1


def new_span_id() -> int:
    return _random.getrandbits(64) or 1
