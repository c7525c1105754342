"""A run that changes its model in the middle: the history that one vendor made is valid at the other."""

import json
from typing import Any

import pytest
from playing import ECHO
from rules import broken_for_anthropic, broken_for_openai

from orchestrator.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.base import Codec, ModelOptions
from orchestrator.models.http import AnthropicModel, HttpModel, OpenAIModel

OPENAI = OpenAIModel("gpt", options=ModelOptions(base_url="https://api.openai.com/v1"))
DEEPSEEK = OpenAIModel("deep", options=ModelOptions(base_url="https://api.deepseek.com"))
MISTRAL = OpenAIModel("mistral-large", options=ModelOptions(base_url="https://api.mistral.ai/v1"))
CLAUDE = AnthropicModel("claude", options=ModelOptions())

THOUGHT = {"type": "thinking", "thinking": "Hmm.", "signature": "sig"}
EXTRAS: dict[HttpModel, dict[str, Any]] = {
    OPENAI: {},
    MISTRAL: {"thought": "Hmm."},
    DEEPSEEK: {"reasoning_content": "Hmm.", "tool_calls": [{"extra_content": {"google": {"thought_signature": "s"}}}]},
    CLAUDE: {"blocks": [THOUGHT, {"type": "text", "text": "Let me look."}, {"type": "tool_use"}]},
}
IDS = {OPENAI: "call_abc{}", MISTRAL: "abcdefgh{}", DEEPSEEK: "call_00_{}", CLAUDE: "toolu_01A{}"}


def made_by(model: HttpModel, turn: int) -> list[Message]:
    """A turn as this model would leave it behind: text, two calls of which one is broken, and their answers."""
    ids = [IDS[model].format(place) for place in (1, 2)]  # the same in each turn, as some servers give them
    calls = (
        ToolCall(id=f"t{turn}.1", name="demo__echo", arguments='{"x": 1}', wire_id=ids[0]),
        ToolCall(id=f"t{turn}.2", name="made up!", arguments='{"x": ', wire_id=ids[1]),
    )
    extra = EXTRAS[model] and {"made_by": model._codec.origin, **EXTRAS[model]}
    message = AssistantMessage(text="Let me look.", calls=calls, extra=extra)
    return [message, *(ToolMessage(call=call, text="1", is_error=call is calls[1]) for call in calls)]


def sent(codec: Codec, messages: list[Message]) -> Any:
    return json.loads(codec.body([codec.message(message) for message in messages], codec.tools([ECHO]), 512))


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("to", EXTRAS, ids=str)
@pytest.mark.parametrize("first", EXTRAS, ids=str)
def test_every_vendors_history_is_valid_at_every_other(first: HttpModel, to: HttpModel) -> None:
    history = [SystemMessage(text="Be."), UserMessage(text="Go."), *made_by(first, 1)]
    history += [*made_by(CLAUDE if first is not CLAUDE else OPENAI, 2), UserMessage(text="And?")]
    body = sent(to.codec, history)
    if isinstance(to, AnthropicModel):
        if to is first:  # its own ids may repeat only because this test made them so
            history[5:8] = []
            body = sent(to.codec, history)
        assert broken_for_anthropic(body) is None
    else:
        if to is first is DEEPSEEK:  # what is its own is beside the common rules
            assert body["messages"][2].pop("reasoning_content") == "Hmm."
            del body["messages"][2]["tool_calls"][0]["extra_content"]
        assert broken_for_openai(body, "[A-Za-z0-9]{9}" if to is MISTRAL else "[!-~]{1,40}") is None


@pytest.mark.parametrize("model", [DEEPSEEK, CLAUDE], ids=str)
def test_what_only_one_vendor_understands_goes_back_to_it_alone(model: HttpModel) -> None:
    history: list[Message] = [UserMessage(text="Go."), *made_by(model, 1)]
    for other in EXTRAS:
        body = json.dumps(sent(other.codec, history))
        assert ("Hmm." in body) == (other is model)
        assert "made_by" not in body
