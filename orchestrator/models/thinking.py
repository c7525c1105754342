"""Thinking that a server leaves in the text, between `<think>` and `</think>`, told apart from the answer."""

import re

START, END = "<think>", "</think>"
# A chat template may have written the opening tag itself; then only the closing one comes, on a line of its own.
_LONE_END = re.compile(r"(?:^|\n)[ \t]*</think>[ \t]*(?:\n\s*|$)")


class Thinking:
    """Feed it text as it comes; it gives back what belongs to the answer. `thought` is the rest.

    Only a tag that begins the reply opens a thought: an answer may well speak of `<think>`.
    """

    def __init__(self) -> None:
        self.thought: str = ""
        self._held: str = ""
        self._state: str = "start"

    def feed(self, text: str) -> str:
        if self._state == "answer":
            return text
        self._held += text
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(START):
                self._state, self._held = "thought", begun.removeprefix(START)
            elif START.startswith(begun):
                return ""
            else:
                return self._rest()
        if self._state == "thought":
            if END not in self._held:
                return ""
            thought, _, self._held = self._held.partition(END)
            self.thought = thought.strip()
            self._state = "gap"
        self._held = self._held.lstrip()
        return self._rest() if self._held else ""

    def close(self) -> str:
        """The reply has ended: what was held back, unless it is a thought that was cut off."""
        if self._state != "thought":
            return self._rest()
        self.thought, self._held = self._held.strip(), ""
        return ""

    def _rest(self) -> str:
        held = self._held
        self._state, self._held = "answer", ""
        return held


def without_lone_end(text: str) -> tuple[str, str]:
    """An answer whose thought was never opened, as (thought, answer). Found only when the whole text is there."""
    found = _LONE_END.search(text) if END in text and START not in text else None
    return (text[: found.start()].strip(), text[found.end() :]) if found else ("", text)
