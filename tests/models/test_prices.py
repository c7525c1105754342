"""What a request costs: prices of the public list, of the configuration, and none."""

import subprocess
import sys
from decimal import Decimal

import pytest

from orchestrator.messages import Prices, Usage
from orchestrator.models import prices
from orchestrator.models.resolve import resolve
from tests.support.models import tables_of

KEYS = {"OPENAI_API_KEY": "sk-test", "KEY": "k"}
SONNET = "https://api.anthropic.com"


def listed(name: str, url: str) -> Prices:
    found = prices.look_up(name, url).prices()
    assert found is not None
    return found


@pytest.mark.requirement("B9")
def test_a_known_model_has_the_price_of_the_public_list() -> None:
    prices = resolve("openai:gpt-4.1-mini", {}, KEYS).prices
    assert prices == Prices(input=Decimal("0.4"), output=Decimal("1.6"), cached=Decimal("0.1"))


@pytest.mark.requirement("B9")
def test_a_configured_price_goes_before_the_list() -> None:
    said = {"input": 0, "output": 0, "cached": 0, "cache_write": "0.5", "reasoning": "0.25"}
    models = tables_of({"gpt-4.1-mini": {"prices": said}})
    assert resolve("gpt-4.1-mini", models, KEYS).prices == Prices(**{key: Decimal(said[key]) for key in said})


@pytest.mark.requirement("B9")
@pytest.mark.parametrize(
    ("spec", "table"),
    [
        ("openai:no-such-model", {}),
        ("ollama:gpt-4.1-mini", {}),
        ("mine", {"model": "gpt-4.1-mini", "base_url": "http://127.0.0.1:8000/v1"}),
        ("mine", {"model": "gpt-4.1-mini", "base_url": "https://gateway.example/v1"}),
    ],
)
def test_a_price_that_nobody_said_is_unknown_and_not_nothing(spec: str, table: dict[str, str]) -> None:
    assert resolve(spec, tables_of({"mine": table}), KEYS).prices is None


@pytest.mark.requirement("B9")
def test_every_kind_of_token_has_its_own_price() -> None:
    prices = Prices(
        input=Decimal(10), output=Decimal(100), cached=Decimal(1), cache_write=Decimal(12), reasoning=Decimal(40)
    )
    usage = Usage(input_tokens=1000, cached_tokens=600, cache_write_tokens=300, output_tokens=50, reasoning_tokens=20)
    micros = 100 * 10 + 600 * 1 + 300 * 12 + 30 * 100 + 20 * 40
    assert prices.cost(usage).amount == Decimal(micros) / 1_000_000
    plain = Prices(input=Decimal(10), output=Decimal(100))
    assert plain.cost(usage).amount == Decimal(1000 * 10 + 50 * 100) / 1_000_000


@pytest.mark.requirement("B9")
def test_the_list_knows_what_writing_a_cache_and_a_long_context_cost() -> None:
    prices = listed("claude-sonnet-4-5", SONNET)
    assert (prices.input, prices.cached, prices.cache_write) == (Decimal(3), Decimal("0.3"), Decimal("3.75"))
    at, over = (prices.cost(Usage(input_tokens=tokens, output_tokens=100)).amount for tokens in (200_000, 200_001))
    assert at == (200_000 * Decimal(3) + 100 * Decimal(15)) / 1_000_000
    assert over == (200_001 * Decimal(6) + 100 * Decimal("22.5")) / 1_000_000


@pytest.mark.requirement("B9")
def test_what_is_reserved_is_never_less_than_what_may_be_charged() -> None:
    prices = listed("claude-sonnet-4-5", SONNET)
    for size in (1_000, 200_001):
        written = Usage(input_tokens=size, cache_write_tokens=size, output_tokens=50, reasoning_tokens=50)
        assert prices.worst(size, 50) == prices.cost(written).amount


@pytest.mark.requirement("B9")
def test_a_cost_that_a_server_counts_oddly_is_never_negative() -> None:
    usage = Usage(input_tokens=10, cached_tokens=500, output_tokens=5, reasoning_tokens=9)
    prices = Prices(input=Decimal(1), output=Decimal(1), cached=Decimal(0), reasoning=Decimal(0))
    assert prices.cost(usage).amount == 0


@pytest.mark.requirement("B9")
def test_a_model_that_is_billed_for_more_than_tokens_has_no_known_price() -> None:
    assert prices.look_up("sonar", "https://api.perplexity.ai").prices() is None


def test_the_list_is_read_only_where_a_price_is_looked_up() -> None:
    program = (
        "import sys; from orchestrator.models.resolve import resolve; resolve('ollama:qwen3', {}, {});"
        "print('genai_prices' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"
