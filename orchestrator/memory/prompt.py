"""A run's next request, as a pure function of its state.

Each message is encoded once and kept as bytes, and the digest of a request is carried on from that of the last one: a
turn appends and does not walk the history. Only where the window was cut does it begin anew. What this object holds is
a memo; it is rebuilt from the state after a resume and gives the same bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from orchestrator.events import LimitReached, WindowCut
from orchestrator.memory.tokens import IMAGE_TOKENS, REQUEST_OVERHEAD, estimate
from orchestrator.messages import AssistantMessage, Message, SystemMessage, UserMessage
from orchestrator.models.base import Codec, ToolSpec
from orchestrator.models.counting import FRESH, NOTHING, Counts, Weights, added, count, tokens

CLOSING = (
    "Stop here: this run has reached a limit ({limit}: {detail}). Do not ask for tools. Write the best final answer "
    "you can from what was found so far, and say plainly what is missing."
)


ANSWER = (
    "Answer the question from the facts, if there are any. State every fact that was asked for, with its number or "
    "name. Never invent a fact; say so where one is missing."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A request but for its output limit. `input_tokens` is an estimate that is never below the last reported input.

    What its model counts beyond `base` tells how it counts a text of the counts `telling`. `apart`: nothing of the
    transcript is in it.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    encoded: Sequence[bytes]
    encoded_tools: bytes
    digest: str
    input_tokens: int
    base: int = 0
    telling: Counts = NOTHING
    apart: bool = False


KEPT = 0.4
"""Of what a window has room for beside its fixed part, the share that the newest turns keep when it is cut."""


class Prompt:
    """The window of one run: system prompt, then the transcript, or what is left of it after a cut."""

    def __init__(self, codec: Codec, system: str, tools: Sequence[ToolSpec]) -> None:
        self._codec = codec
        self._system = SystemMessage(text=system)
        self._tools = tools
        self._encoded_tools = codec.tools(tools)
        self._encoded: list[bytes] = []
        self._counts: list[Counts] = []
        self._images: list[int] = []
        self._cut: WindowCut | None = None
        self._head: tuple[UserMessage, ...] = ()
        self._first = 0
        self._digest = sha256(self._encoded_tools)
        self._append(self._system, {})

    def unseen(self, transcript: Sequence[Message], cut: WindowCut | None) -> list[str]:
        """The bodies of the images that the next draft encodes first."""
        self._slide(cut)
        new = transcript[self._known() :]
        return [image.body for message in new if isinstance(message, UserMessage) for image in message.images]

    def show(self, tools: Sequence[ToolSpec], weights: Weights = FRESH) -> int:
        """Shows another tool list from the next request on; returns about how many tokens it adds."""
        before = self._encoded_tools
        self._tools, self._encoded_tools = tools, self._codec.tools(tools)
        self._digest = sha256(b"".join((self._encoded_tools, *self._encoded)))
        return estimate(self._encoded_tools, weights) - estimate(before, weights)

    def draft(
        self,
        transcript: Sequence[Message],
        *,
        cut: WindowCut | None = None,
        measured: int = 0,
        reported: int = 0,
        stop: LimitReached | None = None,
        images: Mapping[str, bytes] | None = None,
        weights: Weights = FRESH,
    ) -> Draft:
        """The request for the next turn.

        `cut` is where the window was cut last. `reported` is the input that the model counted when the transcript had
        `measured` messages. `stop` asks for a last answer, without tools. `images` are the bodies of the unseen ones,
        for a model that sees. `weights` are how it counts.
        """
        self._slide(cut)
        for message in transcript[self._known() :]:
            self._append(message, images or {})
        shown = (self._system, *self._head, *transcript[self._first :])
        first = self._place(measured) if reported else 0
        telling = added(*self._counts[first:])
        images_shown = sum(self._images[first:])
        base = reported + IMAGE_TOKENS * images_shown
        fresh = tokens(telling, weights)
        if not reported:
            base += REQUEST_OVERHEAD + estimate(self._encoded_tools, weights)
        # Vendors write a tool list in words of their own, and images count by their size.
        told = images_shown == 0 and bool(reported or not self._encoded_tools)
        if stop is None:
            return Draft(
                messages=shown,
                tools=self._tools,
                encoded=self._encoded,
                encoded_tools=self._encoded_tools,
                digest=self._digest.hexdigest(),
                input_tokens=base + fresh,
                base=base,
                telling=telling if told else NOTHING,
            )
        last = UserMessage(text=CLOSING.format(limit=stop.limit, detail=stop.detail))
        encoded = self._codec.message(last)
        return Draft(
            messages=(*shown, last),
            tools=(),
            encoded=(*self._encoded, encoded),
            encoded_tools=self._codec.closed(self._encoded_tools),
            digest=sha256(self._digest.digest() + encoded).hexdigest(),
            input_tokens=base + fresh + estimate(encoded, weights),
        )

    def leaving(self, transcript: Sequence[Message], budget: int, weights: Weights = FRESH) -> int | None:
        """Where the window of the last draft is best cut to stay within `budget` tokens: before a turn, so that no call
        is parted from its results. None when no turn can leave: the newest always stays.
        """
        fixed = self._cost(0, self._place(self._first), weights) + estimate(self._encoded_tools, weights)
        room, taken, through = (budget - fixed - REQUEST_OVERHEAD) * KEPT, 0, None
        for n in range(len(transcript) - 1, max(self._first, 1), -1):
            taken += self._cost(self._place(n), self._place(n + 1), weights)
            if taken > room and through is not None:
                break
            if isinstance(transcript[n], AssistantMessage):
                through = n
        return through

    def weight(self, through: int, weights: Weights = FRESH) -> int:
        """About how many tokens leave with the messages before `through`."""
        return self._cost(self._place(self._first), self._place(through), weights)

    def _cost(self, first: int, end: int, weights: Weights) -> int:
        return tokens(added(*self._counts[first:end]), weights) + IMAGE_TOKENS * sum(self._images[first:end])

    def _slide(self, cut: WindowCut | None) -> None:
        """Begins the window anew where it was cut; the turns that stay keep their bytes."""
        if cut is None or (self._cut is not None and self._cut.seq == cut.seq):
            return
        place = self._place(cut.through)
        encoded, counts, images = self._encoded[place:], self._counts[place:], self._images[place:]
        del self._encoded[1:], self._counts[1:], self._images[1:]
        self._cut, self._first, self._head = cut, cut.through, (UserMessage(text=cut.text),)
        self._append(self._head[0], {})
        self._encoded += encoded
        self._counts += counts
        self._images += images
        self._digest = sha256(b"".join((self._encoded_tools, *self._encoded)))

    def _place(self, n: int) -> int:
        """Where message `n` of the transcript stands among those of the window."""
        return n - self._first + 1 + len(self._head)

    def _known(self) -> int:
        """How much of the transcript is encoded, or has left."""
        return self._first + len(self._encoded) - 1 - len(self._head)

    @property
    def weak(self) -> bool:
        return self._codec.weak

    def apart(self, text: str, *, form: str = "", tools: Collection[str] = (), weights: Weights = FRESH) -> Draft:
        """A request of its own for a reply to `text`, in this `form` or by a call of these `tools`, without the
        transcript."""
        system = SystemMessage(text=f"{self._system.text}\n\n{form}".strip())
        messages = (system, UserMessage(text=text))
        encoded = tuple(map(self._codec.message, messages))
        shown = [tool for tool in self._tools if tool.name in tools]
        encoded_tools = self._codec.tools(shown) if shown else b""
        counts = added(*map(count, encoded))
        base = REQUEST_OVERHEAD + (estimate(encoded_tools, weights) if shown else 0)
        return Draft(
            messages=messages,
            tools=shown,
            encoded=encoded,
            encoded_tools=encoded_tools,
            digest=sha256(b"".join((encoded_tools, *encoded))).hexdigest(),
            input_tokens=base + tokens(counts, weights),
            base=base,
            telling=NOTHING if shown else counts,
            apart=True,
        )

    def _append(self, message: Message, images: Mapping[str, bytes]) -> None:
        encoded = self._codec.message(message)
        self._counts.append(count(encoded))
        self._images.append(0)
        if isinstance(message, UserMessage) and message.images and images:
            shown = tuple(replace(image, data=images[image.body]) for image in message.images)
            encoded = self._codec.message(replace(message, images=shown))
            self._images[-1] = len(shown)  # whatever their size in bytes
        self._encoded.append(encoded)
        self._digest.update(encoded)


def draft_apart(codec: Codec, system: str, text: str, weights: Weights = FRESH) -> Draft:
    """A request by itself, without tools."""
    return Prompt(codec, system, ()).apart(text, weights=weights)
