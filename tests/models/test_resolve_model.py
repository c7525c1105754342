import json
import re
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ConfigurationError
from orchestrator.messages import Prices
from orchestrator.models.http import AnthropicModel, OpenAIModel
from orchestrator.models.resolve import resolve
from tests.support.models import tables_of

KEYS = {"OPENAI_API_KEY": "sk-openai-secret"}


def found(spec: str, environ: dict[str, str] | None = None, tables: dict[str, Any] | None = None) -> dict[str, Any]:
    """Where a model's requests go, and with which key."""
    model = resolve(spec, tables_of(tables or {}), environ or {})
    assert isinstance(model, OpenAIModel)
    headers = dict(model._headers)
    return {
        "name": model.name,
        "provider": model.provider,
        "url": str(model._url).removesuffix("/chat/completions"),
        "key": headers.get(b"Authorization", b"Bearer ").decode().removeprefix("Bearer "),
    }


def refused(spec: str | None, environ: dict[str, str] | None = None, tables: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolve(spec, tables_of(tables or {}), environ or {})
    return str(caught.value)


def test_openai():
    assert found("openai:gpt-x", KEYS) == {
        "name": "gpt-x",
        "provider": "openai",
        "url": "https://api.openai.com/v1",
        "key": "sk-openai-secret",
    }
    elsewhere = {"OPENAI_BASE_URL": "http://localhost:8000/v1/"}
    assert found("openai:org/m:7b", elsewhere)["url"] == "http://localhost:8000/v1"
    assert found("openai:org/m:7b", elsewhere)["name"] == "org/m:7b"
    assert found("openai:m", elsewhere | KEYS)["key"] == "sk-openai-secret"


def test_a_missing_key_names_its_variable():
    assert "OPENAI_API_KEY" in refused("openai:gpt-x")
    assert "OPENAI_API_KEY" in refused("fast", {}, {"fast": {"base_url": "https://api.openai.com/v1"}})
    table = {"fast": {"base_url": "http://x/v1", "api_key_env": "X_KEY"}}
    assert "[models.fast] needs a key: set the environment variable X_KEY" in refused("fast", KEYS, table)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("box:99", "http://box:99/v1"),
        (":99", "http://127.0.0.1:99/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("[::1]:5", "http://[::1]:5/v1"),
        ("http://box:99/", "http://box:99/v1"),
        ("https://box", "https://box/v1"),
        ("http://box:1/ollama", "http://box:1/ollama/v1"),
    ],
)
def test_ollama(host: str, url: str):
    model = found("ollama:qwen3:4b", {"OLLAMA_HOST": host, **KEYS})
    assert model == {"name": "qwen3:4b", "provider": "ollama", "url": url, "key": ""}


def test_a_table():
    tables = {
        "deep": {
            "provider": "deepseek",
            "model": "deepseek-chat",
            "base_url": "https://deep.example/v1",
            "api_key_env": "DEEP_KEY",
            "temperature": 1,
            "prices": {"input": "0.28", "output": 0.42, "cached": "0.028"},
        },
        "gpt-x": {},
        "local": {"base_url": "http://127.0.0.1:8080/v1"},
    }
    environ = {"DEEP_KEY": "deep-secret", **KEYS}
    assert found("deep", environ, tables) == {
        "name": "deepseek-chat",
        "provider": "deepseek",
        "url": "https://deep.example/v1",
        "key": "deep-secret",
    }
    prices = resolve("deep", tables_of(tables), environ).prices
    assert prices == Prices(input=Decimal("0.28"), output=Decimal("0.42"), cached=Decimal("0.028"))
    assert found("gpt-x", environ, tables)["name"] == "gpt-x"
    assert found("gpt-x", environ, tables)["key"] == "sk-openai-secret"
    assert found("local", environ, tables)["key"] == "", "OpenAI's key is for OpenAI"


def test_the_cards_temperature_goes_first():
    models = tables_of({"m": {"base_url": "http://x/v1", "temperature": 1}})

    def temperature(own: float | None) -> float:
        return json.loads(resolve("m", models, {}, temperature=own).codec.body([], b"", 1))["temperature"]

    assert (temperature(None), temperature(0)) == (1, 0)


def test_a_recording(tmp_path: Path):
    path = tmp_path / "demo.jsonl"
    path.write_text('{"recording": 1, "source": "s", "model": "m"}\n')
    assert resolve(f"scripted:{path}", {}, {}).name == "recorded:demo"
    assert "gone.jsonl" in refused("scripted:gone.jsonl")


def test_no_model_says_the_three_ways_on():
    for spec in (None, "", " "):
        said = refused(spec)
        assert all(
            way in said for way in ("OPENAI_API_KEY", "--model openai:", "--model ollama:", "make demo", "scripted:")
        )


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("opnai:gpt-x", "Did you mean `openai`?"),
        ("gpt-x", "one of: openai:NAME, anthropic:NAME, ollama:NAME, scripted:FILE"),
        ("fats", "Did you mean `fast`?"),
        ("openai:", "names nothing after the colon"),
        ("anthropic:claude", "set the environment variable ANTHROPIC_API_KEY"),
        ("anthropc:claude", "Did you mean `anthropic`?"),
        ("lost", "needs"),
    ],
)
def test_a_spec_that_is_not_known(spec: str, says: str):
    tables = {"fast": {}, "lost": {"provider": "mistral_ai", "base_url": "http://x", "api_key_env": "M"}}
    said = refused(spec, {}, tables)
    assert says in said
    assert repr(spec) in said or spec == "lost"


def test_a_provider_without_an_address():
    assert "set `base_url`" in refused("m", KEYS, {"m": {"provider": "mistral_ai"}})


def test_http_is_imported_only_for_a_model_that_needs_it():
    code = "import sys, orchestrator.models.resolve; print([m for m in ('httpx2', 'mcp') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def anthropics(spec: str, environ: dict[str, str], tables: dict[str, Any] | None = None) -> tuple[str, str, str]:
    """Where requests go, with which key, and as whose model."""
    model = resolve(spec, tables_of(tables or {}), environ)
    assert isinstance(model, AnthropicModel)
    headers = dict(model._headers)
    assert headers[b"Anthropic-Version"] == b"2023-06-01"
    assert b"Authorization" not in headers
    assert model.key[1] == (b"X-Api-Key" in headers)
    return str(model._url), headers.get(b"X-Api-Key", b"").decode(), f"{model.provider}:{model.name}"


def test_anthropic():
    keys = {"ANTHROPIC_API_KEY": "sk-ant-secret", **KEYS}
    ours = ("https://api.anthropic.com/v1/messages", "sk-ant-secret", "anthropic:claude-x")
    assert anthropics("anthropic:claude-x", keys) == ours
    assert anthropics("claude-x", keys, {"claude-x": {"provider": "anthropic"}}) == ours
    near = keys | {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/"}
    assert anthropics("anthropic:claude-x", near)[:2] == ("http://127.0.0.1:9/v1/messages", "sk-ant-secret")


def test_anthropics_wire_at_another_address():
    keys = {"ANTHROPIC_API_KEY": "sk-ant-secret", **KEYS, "DEEP_KEY": "deep"}
    table = {"provider": "deepseek", "api": "anthropic", "base_url": "https://deep.example/anthropic/v1/"}
    url = "https://deep.example/anthropic/v1/messages"
    assert anthropics("m", keys, {"m": table}) == (url, "", "deepseek:m"), "Anthropic's key is for Anthropic"
    assert anthropics("m", keys, {"m": {**table, "api_key_env": "DEEP_KEY"}})[1] == "deep"
    assert anthropics("m", keys, {"m": {**table, "provider": "anthropic"}})[1] == ""


def test_parameters_are_sent_as_they_are():
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    for provider in ("openai", "anthropic"):
        tables = {"m": {"provider": provider, "base_url": "http://x", "parameters": thinking}}
        sent = json.loads(resolve("m", tables_of(tables), {}).codec.body([], b"", 1))
        assert sent["thinking"] == thinking["thinking"]


@pytest.mark.requirement("B1")
def test_every_table_of_the_page_on_models_is_a_model():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    blocks = [tomllib.loads(block)["models"] for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    assert len(blocks) >= 8
    for name, table in (one for block in blocks for one in block.items()):
        environ = dict.fromkeys((table.get("api_key_env", "ANTHROPIC_API_KEY"), "OPENAI_API_KEY"), "k")
        model = resolve(name, tables_of({name: table}), environ)
        assert (model.name, model.provider) == (table.get("model", name), table.get("provider", "openai"))
