"""Server-sent events, read from bytes as they come. Only `data` matters here; other fields are skipped."""


class SSEParser:
    """Feed it chunks split at any byte; it gives back the data of each event that is complete.

    A line ends with LF, CR or CRLF. Time and memory are linear in the stream, also when one line comes in many chunks.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []  # pieces of a line without its end
        self._data: list[bytes] = []  # lines of an event without its end

    def feed(self, chunk: bytes) -> list[bytes]:
        held = self._held
        if held and held[-1].endswith(b"\r"):  # whether that is the end of a line or half of one is known only now
            chunk = b"".join(held) + chunk
            held.clear()
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r", 0, -1)) + 1
        if not end:
            if chunk:
                held.append(chunk)
            return []
        whole = b"".join((*held, chunk[:end])) if held else chunk[:end]
        self._held = [chunk[end:]] if end < len(chunk) else []
        return self._lines(whole)

    def close(self) -> list[bytes]:
        """What is left at the end of the stream; many servers do not end their last event."""
        last = b"".join(self._held)
        self._held = []
        return self._lines(last + b"\n\n")

    def _lines(self, whole: bytes) -> list[bytes]:
        events: list[bytes] = []
        data = self._data
        for line in whole.splitlines():
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and data:
                events.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        return events
