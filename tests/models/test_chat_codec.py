import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.base import ToolSpec
from orchestrator.models.chat import ChatCodec
from orchestrator.models.wire import NO_TEXT, wire_arguments, wire_id

TOOL = ToolSpec(name="s__add", description="Adds.", parameters={"type": "object"})


def call(id_: str = "t1.1", arguments: str = "{}", wire: str | None = None) -> ToolCall:
    return ToolCall(id=id_, name="s__add", arguments=arguments, wire_id=wire)


def test_a_request_is_its_parts_joined_and_the_same_each_time():
    codec = ChatCodec("m", temperature=0.2)
    parts = [codec.message(SystemMessage(text="Sei präzise.")), codec.message(UserMessage(text="你好"))]
    body = codec.body(parts, codec.tools([TOOL]), 512)
    assert body.decode() == (
        '{"model":"m","messages":[{"role":"system","content":"Sei präzise."},{"role":"user","content":"你好"}],'
        '"tools":[{"type":"function","function":{"name":"s__add","description":"Adds.","parameters":{"type":"object"}}}],'
        '"stream":true,"stream_options":{"include_usage":true},"temperature":0.2,"max_tokens":512}'
    )
    assert body == ChatCodec("m", temperature=0.2).body(parts, codec.tools([TOOL]), 512)


def test_no_tools_and_no_temperature_are_left_out():
    codec = ChatCodec("m%d")
    assert codec.tools([]) == b""
    body = json.loads(codec.body([codec.message(UserMessage(text="hi"))], b"", 1))
    assert body.keys() == {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert body["model"] == "m%d"


def test_a_call_and_its_answer_share_their_wire_id():
    codec = ChatCodec("m")
    for one in (call(), call(wire="call_abc"), call("planner/t1.1")):
        asked = json.loads(codec.message(AssistantMessage(text="", calls=(one,))))
        answered = json.loads(codec.message(ToolMessage(call=one, text="3")))
        assert asked["content"] is None
        assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] == wire_id(one)
        assert answered == {"role": "tool", "tool_call_id": wire_id(one), "content": "3"}
    assert wire_id(call(wire="call_abc")) == "call_abc"


@settings(deadline=None)
@given(st.sets(st.one_of(st.from_regex(r"t[0-9]{1,7}\.[0-9]{1,4}", fullmatch=True), st.text(max_size=12)), max_size=40))
def test_derived_ids_are_nine_alphanumerics_and_differ(ids: set[str]):
    derived = {wire_id(call(id_)) for id_ in ids}
    assert all(len(id_) == 9 and id_.isascii() and id_.isalnum() for id_ in derived)
    assert len(derived) == len(ids)


def test_ids_of_ours_stay_readable():
    assert wire_id(call("t12.3")) == "0000012c3"


@pytest.mark.parametrize(
    "text", ['{"a":', "[1]", '"x"', "NaN", '{"a": NaN}', "{'a': 1}", "[" * 5000, '{"a":"\\ud800"}']
)
def test_arguments_that_are_no_object_enter_history_as_one(text: str):
    assert json.loads(wire_arguments(text)) == {"_invalid": text}


def test_arguments_that_are_an_object_stay_as_they_are():
    assert wire_arguments('{"b": 1,  "a": "ü"}') == '{"b": 1,  "a": "ü"}'
    assert wire_arguments("") == wire_arguments("  ") == "{}"


@settings(deadline=None)
@given(st.text(alphabet=st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=["L", "Cs", "Cc", "So"])))
def test_any_text_can_be_sent(text: str):
    codec = ChatCodec("m")
    one = call(arguments=text)
    for message in (
        UserMessage(text=text),
        AssistantMessage(text=text, calls=(one,)),
        ToolMessage(call=one, text=text),
    ):
        wire = json.loads(codec.message(message).decode("utf-8"))
        if text.isprintable():
            assert wire["content"] == (text or (None if isinstance(message, AssistantMessage) else ""))


def test_an_empty_answer_is_not_sent_as_empty_content():
    assert json.loads(ChatCodec("m").message(AssistantMessage(text="")))["content"] == NO_TEXT


def test_vendors_fields_go_back():
    codec = ChatCodec("m")
    extra = {
        "reasoning_content": "hmm",
        "extra_content": {"google": 1},
        "tool_calls": [{}, {"extra_content": {"google": {"thought_signature": "sig"}}}],
    }
    wire = json.loads(codec.message(AssistantMessage(text="", calls=(call(), call("t1.2")), extra=extra)))
    assert wire["reasoning_content"] == "hmm"
    assert wire["extra_content"] == {"google": 1}
    assert "extra_content" not in wire["tool_calls"][0]
    assert wire["tool_calls"][1]["extra_content"] == {"google": {"thought_signature": "sig"}}
    assert wire["tool_calls"][1]["function"] == {"name": "s__add", "arguments": "{}"}


def test_reasoning_goes_back_only_with_calls():
    wire = json.loads(ChatCodec("m").message(AssistantMessage(text="4", extra={"reasoning": "2+2", "role": "x"})))
    assert wire == {"role": "assistant", "content": "4"}


def test_what_a_server_refuses_is_left_out_from_then_on():
    codec = ChatCodec("m", temperature=0.2)
    message = codec.message(UserMessage(text="hi"))
    body = codec.body([message], b"", 9)
    for parameter in ("max_tokens", "temperature", "stream_options", "max_completion_tokens"):
        body = codec.refuse(parameter, body)
        assert json.loads(body) == json.loads(codec.body([message], b"", 9))
        assert parameter not in json.loads(body)
        assert ("max_completion_tokens" in json.loads(body)) == (parameter != "max_completion_tokens")
    assert json.loads(body).keys() == {"model", "messages", "stream"}
