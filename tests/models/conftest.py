from collections.abc import Iterator

import pytest

from orchestrator.models.learned import learned_at


@pytest.fixture(autouse=True)
def nothing_learned() -> Iterator[None]:
    """Ports of servers that are gone are given out again: what was learned there must not be believed here."""
    yield
    learned_at.cache_clear()
