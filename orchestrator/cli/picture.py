"""A replayed run as a picture: who thought and called what, when, and what it took. It suits light and dark pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rich.cells import cell_len, set_cell_size

from orchestrator.cli.drawing import clock, flat, shown, spent
from orchestrator.cli.progress import colour, short_name

if TYPE_CHECKING:
    from orchestrator.runtime.replay import ReplayedCall, ReplayedRun, ReplayedTurn

WIDTH, ROW, HEAD, EDGE = 900, 22, 62, 16
LABELS, BARS, TOKENS = 500, 180, 110
"""Pixels of the columns: what happened, when, and tokens; times take the rest."""

CELL = 7.23
"""Pixels of one character at 12 px, in any monospaced font."""

STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; }
.page { fill: #ffffff; stroke: #d1d9e0; }
.bold { font-weight: 600; } .quiet { fill: #59636e; } .end { text-anchor: end; }
.line { stroke: #d1d9e0; } .failed { fill: #d1242f; }
.cyan { fill: #1b7c83; } .magenta { fill: #8250df; } .green { fill: #1a7f37; } .yellow { fill: #9a6700; }
.blue { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .page { fill: #0d1117; stroke: #3d444d; }
  .quiet { fill: #9198a1; } .line { stroke: #3d444d; } .failed { fill: #ff7b72; }
  .cyan { fill: #39c5cf; } .magenta { fill: #bc8cff; } .green { fill: #3fb950; } .yellow { fill: #d29922; }
  .blue { fill: #58a6ff; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`at` and `seconds` say where its bar is; without `seconds` there is none."""

    depth: int
    label: str
    hue: str
    at: float
    seconds: float | None = None
    tokens: str = ""
    head: bool = False
    failed: bool = False


def picture(run: "ReplayedRun") -> str:
    """An SVG document. Times and what they move have the class `time`, counts of tokens the class `tokens`."""
    rows = list(_agent(run, 0))
    start = min([run.started_at, *(row.at for row in rows)])
    end = max([start + 0.001, *(row.at + (row.seconds or 0) for row in rows)])
    height = HEAD + ROW * len(rows) + EDGE
    body = [part for n, row in enumerate(rows) for part in _row(row, HEAD + ROW * n, start, end - start)]
    title = escape(_cut(flat(shown(run.task)), WIDTH - 2 * EDGE))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            _text(EDGE, 24, title, "bold"),
            _text(EDGE, 44, spent(run.usage, run.cost), "quiet tokens"),
            _text(WIDTH - EDGE, 44, clock(run.seconds), "quiet end time"),
            f'<path class="line" d="M{EDGE} {HEAD - 8}H{WIDTH - EDGE}"/>',
            *body,
            "</svg>\n",
        ]
    )


def _agent(run: "ReplayedRun", depth: int) -> Iterator[Row]:
    hue = colour(run.agent)
    if depth == 0:
        yield Row(depth=0, label=run.agent, hue=hue, at=run.started_at, head=True)
    for turn in run.turns:
        yield _thought(turn, depth + 1, hue)
        for call in turn.calls:
            yield from _call(call, depth + 1, hue)


def _thought(turn: "ReplayedTurn", depth: int, hue: str) -> Row:
    told = flat(shown(turn.thought)) or "…"
    tokens = f"{turn.usage.input_tokens:,} + {turn.usage.output_tokens:,}" if turn.usage is not None else ""
    return Row(depth=depth, label=f"“{told}”", hue=hue, at=turn.at, seconds=turn.seconds, tokens=tokens)


def _call(call: "ReplayedCall", depth: int, hue: str) -> Iterator[Row]:
    at = call.began_at if call.began_at is not None else call.ended_at or 0.0
    agent = call.run is not None
    if at:
        yield Row(
            depth=depth,
            label=shown(short_name(call.tool)),
            hue=colour(call.run.agent) if call.run is not None else hue,
            at=at,
            seconds=call.seconds,
            head=agent,
            failed=call.error is not None,
        )
    if call.run is not None:
        yield from _agent(call.run, depth)


def _row(row: Row, y: int, start: float, span: float) -> Iterator[str]:
    x = EDGE + 18 * row.depth
    kind = f"bold {row.hue}" if row.head else "quiet" if row.label.startswith("“") else "failed" if row.failed else ""
    mark = "" if row.head or row.label.startswith("“") else "✗ " if row.failed else "→ "
    yield _text(x, y + 15, escape(_cut(mark + row.label, EDGE + LABELS - x)), kind)
    if row.seconds is None:
        return
    left = EDGE + LABELS + 8
    begin, width = left + BARS * (row.at - start) / span, max(2.0, BARS * row.seconds / span)
    yield f'<rect class="{row.hue} time" x="{begin:.1f}" y="{y + 6}" width="{width:.1f}" height="10" rx="2"/>'
    if row.tokens:
        yield _text(left + BARS + 8 + TOKENS, y + 15, row.tokens, "quiet end tokens")
    yield _text(WIDTH - EDGE, y + 15, clock(row.seconds), "quiet end time")


def _text(x: float, y: int, text: str, kind: str) -> str:
    """`text` is escaped already."""
    return f'<text x="{x}" y="{y}" class="{kind}">{text}</text>'


def _cut(text: str, pixels: float) -> str:
    room = int(pixels / CELL)
    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + "…"
