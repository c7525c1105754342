"""What every wire needs of a history: ids, names and arguments that no server refuses, and whose extras they are.

A history is in our own messages and may have been made by several vendors in turn. What only one of them understands
stands in a message's `extra` under that vendor's name and goes back to no other.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.messages import AssistantMessage, ToolCall
from orchestrator.models.lenient import dump, is_object

# Some servers refuse an assistant turn with empty content; without the turn, two user turns would follow each other.
NO_TEXT: Final = "(no answer)"
MADE_BY: Final = "made_by"
"""The key in `extra` that says at which endpoint, and by which model, it was made."""

ANY_ID: Final = re.compile(r"[!-~]{1,40}", re.ASCII)
"""OpenAI takes ids of 40 characters; those of vLLM are longer."""
_OUR_ID = re.compile(r"t([1-9]\d*)\.([1-9]\d*)", re.ASCII)
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def wire_id(call: ToolCall, fits: re.Pattern[str] = ANY_ID) -> str:
    """The vendor's id of a call where it fits, else nine alphanumerics made of ours: `t5.1` is `0000005c1`."""
    if call.wire_id and fits.fullmatch(call.wire_id):
        return call.wire_id
    if (found := _OUR_ID.fullmatch(call.id)) and len(short := f"{found[1]}c{found[2]}") <= 9:
        return short.rjust(9, "0")
    number = int.from_bytes(hashlib.blake2b(call.id.encode("utf-8", "replace"), digest_size=8).digest())
    return "".join(_BASE62[number // 62**place % 62] for place in range(9))


def wire_name(name: str) -> str:
    """A tool's name as it enters history: one that a model made up must not make every later turn be refused."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "_"


def wire_arguments(text: str) -> str:
    """A call's arguments as they enter history: a JSON object, always.

    Text that is none goes in as `{"_invalid": text}`: a server that gets it raw answers 500 to every later turn, and
    the model should still see what it wrote.
    """
    if is_object(text):
        return text
    return dump({"_invalid": text}).decode() if text.strip() else "{}"


def own_extra(message: AssistantMessage, origin: str) -> Mapping[str, Any]:
    """The extra fields of a message that `origin` made, without the mark; none of another's."""
    if message.extra.get(MADE_BY, "") != origin:
        return {}
    return {name: value for name, value in message.extra.items() if name != MADE_BY}
