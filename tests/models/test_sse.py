import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import END, HELLO, delta

from orchestrator.models.reply import ReplyReader
from orchestrator.models.sse import SSEParser


def parse(*chunks: bytes) -> list[bytes]:
    parser = SSEParser()
    return [data for chunk in chunks for data in parser.feed(chunk)] + parser.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data:a\ndata: b\n\n", [b"a\nb"]),
        (b": comment\n\ndata: : keepalive\n\nevent: x\nid: 1\ndata: a\nretry: 5\n\n", [b": keepalive", b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"data: a\r", [b"a"]),
        (b"data:  two\n\n", [b" two"]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_events(stream: bytes, events: list[bytes]):
    assert parse(stream) == events
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == events


LINES = st.sampled_from([b"data: a", b"data:{}", b"data: \xc3\xa4", b": c", b"event: e", b"", b"data", b"x"])
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@settings(deadline=None)
@given(STREAMS, st.data())
def test_where_chunks_are_split_does_not_matter(stream: bytes, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parse(*pieces) == parse(stream)


@settings(deadline=None)
@given(st.data())
def test_a_reply_is_the_same_however_its_bytes_come(data: st.DataObject):
    calls = [
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "a", "arguments": '{"x":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"ü"}'}}]),
    ]
    stream = b"".join([*HELLO[:-2], *calls, END])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = ReplyReader()
    text = [reader.feed(stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert "".join(text) + reader.close() == "Hello"
    message = reader.reply().message
    assert [(call.id, call.name, call.arguments, call.wire_id) for call in message.calls] == [
        ("1", "a", '{"x":"ü"}', "c1")
    ]


def test_a_long_line_in_many_chunks_is_joined_once():
    joined = 0

    class Counted(bytes):
        def rfind(self, *args):  # the parser looks at each chunk, never again at what it holds
            nonlocal joined
            joined += len(self)
            return super().rfind(*args)

    parser = SSEParser()
    chunks = [b"data: ", *[b"x" * 100] * 2000, b"\n\n"]
    events = [data for chunk in chunks for data in parser.feed(Counted(chunk))]
    assert [len(event) for event in events] == [200_000]
    assert joined <= 2 * 200_100
