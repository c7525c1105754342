"""How models count tokens is learned from what they report, judged by real tokenizers' counts of texts."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.models.counting import FRESH, NOTHING, Tally, Weights, added, count, tokens

TEXTS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "token_counts.json").read_text("utf-8"))["texts"]
PROMISED = ("english", "chinese", "json", "digits", "code")
TOKENIZERS = ("cl100k", "deepseek", "qwen")


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [row for row in TEXTS if row["kind"] == kind]


def error(rows: Sequence[dict[str, Any]], tokenizer: str, weights: Weights) -> float:
    """By which share the estimate of these texts is wrong."""
    estimated = sum(tokens(count(row["text"].encode()), weights) for row in rows)
    return estimated / sum(row["tokens"][tokenizer] for row in rows) - 1


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("kind", ["english", "json", "code"])
def test_before_a_model_has_reported_english_json_and_code_are_right(kind: str, tokenizer: str) -> None:
    assert abs(error(of_kind(kind), tokenizer, FRESH)) <= 0.15


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_before_a_model_has_reported_chinese_and_digits_lie_between_the_tokenizers(tokenizer: str) -> None:
    for kind in ("chinese", "digits"):
        errors = [error(of_kind(kind), each, FRESH) for each in TOKENIZERS]
        assert min(errors) < 0 < max(errors), kind
        assert abs(error(of_kind(kind), tokenizer, FRESH)) < 0.4, kind


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("order", range(10))
def test_after_a_few_reports_every_kind_is_right_in_whatever_order_they_came(tokenizer: str, order: int) -> None:
    told = [row for kind in dict.fromkeys(row["kind"] for row in TEXTS) for row in of_kind(kind)[::2]]
    random.Random(order).shuffle(told)
    tally = Tally()
    for row in told:
        tally.learn(count(row["text"].encode()), row["tokens"][tokenizer])
    errors = {kind: round(error(of_kind(kind)[1::2], tokenizer, tally.weights), 3) for kind in PROMISED}
    assert max(map(abs, errors.values())) <= 0.15, errors


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_two_reports_of_chinese_are_enough(tokenizer: str) -> None:
    tally = Tally()
    for row in of_kind("chinese")[:2]:
        tally.learn(count(row["text"].encode()), row["tokens"][tokenizer])
    assert abs(error(of_kind("chinese")[2:], tokenizer, tally.weights)) <= 0.15
    assert abs(error(of_kind("english"), tokenizer, tally.weights)) <= 0.05


@pytest.mark.requirement("B7")
def test_text_in_json_counts_as_the_text_itself() -> None:
    for row in of_kind("code") + of_kind("chinese"):
        plain = tokens(count(row["text"].encode()))
        quoted = tokens(count(json.dumps(row["text"], ensure_ascii=False).encode()))
        assert plain <= quoted <= plain * 1.03 + 2


@pytest.mark.requirement("B7")
@pytest.mark.parametrize(
    "text", [b"x" * 10_000, b" " * 10_000, b"\t" * 10_000, b"\n" * 1_000, b"{" * 1_000, b"7" * 500]
)
def test_no_text_is_nearly_free(text: bytes) -> None:
    assert tokens(count(text)) >= len(text) / 20


@pytest.mark.requirement("B7")
@pytest.mark.parametrize("reported", [-40, 0, 1, 100_000])
def test_a_report_that_is_of_something_else_teaches_nothing(reported: int) -> None:
    tally = Tally()
    assert tally.learn(count(TEXTS[0]["text"].encode()), reported) == FRESH
    assert tally.learn(NOTHING, reported) == FRESH


@pytest.mark.requirement("B7")
def test_no_weight_falls_below_nothing() -> None:
    tally = Tally()
    for _ in range(50):
        counts = count(b"7 7 7 " * 100)
        tally.learn(counts, tokens(counts, tally.weights) // 2)
    assert min(tally.weights) >= 0
    assert tokens(added(count(b"a"), NOTHING), tally.weights) == 1


@pytest.mark.requirement("B7")
def test_what_another_process_had_learned_counts_until_something_is_learned_here() -> None:
    tally, other = Tally(), (1.0,) * len(FRESH)
    tally.recall((1.0, 2.0))
    assert tally.weights == FRESH, "weights of another make are not used"
    tally.recall(other)
    tally.recall(FRESH)
    assert tally.weights == other
