"""What models cost by the public list of the package `genai-prices`, as it is installed: nothing is fetched.

A price is looked up by the address that requests go to, since that is who sends the bill; a server of one's own, and
one that the list does not know, has no price here. Imported only when such a model is used.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from orchestrator.messages import Prices


class Listed(NamedTuple):
    """What the list knows. `prices` says them at the time it is called: some change by the hour, some on a date.

    `window` is in tokens.
    """

    prices: Callable[[], Prices | None] = lambda: None
    window: int | None = None


def look_up(model: str, base_url: str) -> Listed:
    """What the list says of a model at an address."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - a tenth of a second to import

    try:
        _, info = get_snapshot().find_provider_model(model, None, None, base_url)
    except LookupError:
        return Listed()
    return Listed(lambda: _prices(info.get_prices(datetime.now(UTC))), info.context_window)


def _prices(listed: Any) -> Prices | None:
    """`listed` is the package's `ModelPrice`: a price, or prices by the size of the input, for each kind of token."""
    fields = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "output_reasoning_mtok")
    found = [getattr(listed, field) for field in fields]
    if found[0] is None or found[1] is None or listed.requests_kcount is not None:
        return None  # not billed by the token alone
    starts = sorted({tier.start for price in found for tier in getattr(price, "tiers", ())})
    above = tuple((start, _at(found, start)) for start in starts)
    return _at(found, 0, above)


def _at(found: list[Any], start: int, above: tuple[tuple[int, Prices], ...] = ()) -> Prices:
    """The prices of requests whose input has more than `start` tokens."""
    values: list[Decimal | None] = []
    for price in found:
        tiers = [tier.price for tier in getattr(price, "tiers", ()) if start and tier.start <= start]
        values.append(tiers[-1] if tiers else getattr(price, "base", price))
    given, written, cached, cache_write, reasoning = values
    assert given is not None
    assert written is not None
    return Prices(input=given, output=written, cached=cached, cache_write=cache_write, reasoning=reasoning, above=above)
