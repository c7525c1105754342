"""The `charts` server: pictures, file names, refusals and fonts."""

import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stdio import REPO, Refused, serving

MONTHS = {
    "path": "examples/sales.csv",
    "sql": "SELECT strftime(date, '%Y-%m') AS month, SUM(amount) AS total FROM data GROUP BY month ORDER BY month",
}
ROWS = [{"month": "2025-02", "total": 95}, {"month": "2025-01", "total": "1,200.50"}]
LINE = {"kind": "line", "x": "month", "y": "total", "title": "Monthly sales"}
BAR = {"x": {"field": "month", "type": "ordinal"}, "y": {"field": "total", "type": "quantitative"}}


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a whole PNG file."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    return struct.unpack(">II", data[16:24])


def test_a_table_query_becomes_a_line_chart(charts, workspace):
    drawn = charts("draw_chart", source=MONTHS, **LINE)
    assert drawn["path"] == "out/Monthly-sales.png"
    path = workspace / drawn["path"]
    assert drawn["absolute_path"] == str(path)
    assert png_size(path) == (drawn["width"], drawn["height"]) == (1800, 1000)
    assert drawn["bytes"] == path.stat().st_size
    assert (drawn["points"], drawn["warnings"]) == (12, [])


@pytest.mark.parametrize("series", ["month", "total"])
def test_a_line_of_single_points_is_one_line(charts, workspace, series):
    def drawn(name, **given):
        made = charts("draw_chart", source=MONTHS, format="svg", file_name=name, **LINE, **given)
        return made["warnings"], (workspace / made["path"]).read_bytes()

    (warning,), picture = drawn("alone", series=series)
    assert warning.startswith("series is left out")
    assert picture == drawn("one")[1]


def test_the_picture_has_the_labels_in_order(charts, workspace):
    def texts(**given):
        svg = (workspace / charts("draw_chart", format="svg", file_name="labels", **given)["path"]).read_text()
        assert svg.startswith("<svg")
        return re.findall(r">([^<>]+)</(?:text|tspan)>", svg)

    line = texts(source=ROWS, y_title="Sales (USD)", **LINE)
    assert line.index("Jan") < line.index("2025") < line.index("Feb")
    assert {"Monthly sales", "Sales (USD)", "Month", "1,000"} <= set(line)
    bars = texts(source=[*ROWS, {"month": "2024-12", "total": 1}], **{**LINE, "kind": "bar"})
    assert bars.index("Dec 2024") < bars.index("Jan 2025") < bars.index("Feb 2025")
    names = texts(source=[{"m": "Mar", "n": 1}, {"m": "Jan", "n": 2}], kind="bar", x="m", y="n", title="t")
    assert names.index("Jan") < names.index("Mar")
    given = texts(source=[{"m": "b", "n": 1}, {"m": "a", "n": 2}], kind="bar", x="m", y="n", title="t")
    assert given.index("b") < given.index("a")
    slices = texts(source=[{"m": "small", "n": 1}, {"m": "big", "n": 3}], kind="pie", x="m", y="n", title="t")
    assert slices.index("big (75.0%)") < slices.index("small (25.0%)")
    several = texts(source=[{"m": "a", "p.q": 1, "r": 2}], kind="bar", x="m", y=["p.q", "r"], title="t")
    assert {"p.q", "r"} <= set(several)


@pytest.mark.parametrize("kind", ["line", "bar", "area", "scatter", "pie"])
def test_every_kind_is_drawn(charts, workspace, kind):
    drawn = charts("draw_chart", source=ROWS, **{**LINE, "kind": kind}, file_name=f"kind-{kind}.svg")
    assert (drawn["path"], drawn["format"], drawn["width"]) == (f"out/kind-{kind}.svg", "svg", 900)


def test_nothing_is_overwritten_and_names_are_safe(charts, workspace):
    def draw(name):
        return charts("draw_chart", source=ROWS, file_name=name, format="svg", **LINE)["path"]

    assert [draw("same"), draw("same.svg"), draw("same.png")] == ["out/same.svg", "out/same-2.svg", "out/same-3.svg"]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(draw, ["race"] * 4)) == {"out/race.svg", *(f"out/race-{n}.svg" for n in (2, 3, 4))}
    names = {
        "../../up": "up",
        "/etc/x": "x",
        "..": "chart",
        "销售 图": "销售-图",
        "a/b\\c.svg": "c",
        ".hidden": "hidden",
    }
    for name, stem in names.items():
        assert draw(name) == f"out/{stem}.svg"
    assert not [path for path in (workspace / "out").iterdir() if path.name.startswith(".")]


def test_gaps_repeats_and_wrong_columns_are_said(charts):
    gaps = [*ROWS, {"month": "2025-03", "total": None}, {"month": "2025-04", "total": ""}]
    assert charts("draw_chart", source=gaps, **LINE)["warnings"] == ["2 of 4 points have no value and are left out"]
    twice = charts("draw_chart", source=[*ROWS, *ROWS], **LINE)["warnings"]
    assert "2 values of 'month' have several points" in twice[0]
    errors = {
        "Did you mean 'total'": {"y": "totl", "source": ROWS},
        "must be numbers, but one is 'many'": {"source": [{"month": "2025-01", "total": "many"}]},
        "no rows": {"source": []},
        "Nothing to draw": {"source": [{"month": "2025-01", "total": None}]},
        "negative": {"kind": "pie", "source": [{"month": "a", "total": -1}]},
        "outside the folders": {"source": {"path": "/etc/passwd", "sql": "FROM data"}},
        "Only one SELECT": {"source": {"path": "examples/sales.csv", "sql": "COPY data TO 'x'"}},
    }
    for words, given in errors.items():
        with pytest.raises(Refused, match=words):
            charts("draw_chart", **{**LINE, **given})


def test_a_vega_lite_specification_is_drawn(charts, workspace):
    layers = {
        "data": {"values": [*ROWS, {"month": "2025-03", "total": None}]},
        "transform": [{"calculate": "datum.total * 2", "as": "double"}],
        "encoding": {"x": BAR["x"]},
        "layer": [
            {"mark": "bar", "encoding": {"y": BAR["y"]}},
            {"mark": {"type": "line"}, "encoding": {"y": {"field": "double", "type": "quantitative"}}},
        ],
    }
    drawn = charts("draw_vega_lite", spec=layers, file_name="layers")
    assert png_size(workspace / drawn["path"]) == (drawn["width"], drawn["height"])
    assert drawn["points"] == 3
    drawn = charts("draw_vega_lite", spec={"mark": "bar", "encoding": BAR, "title": "From SQL"}, source=MONTHS)
    assert (drawn["path"], drawn["points"]) == ("out/From-SQL.png", 12)
    spec = {"data": {"values": [{"month": "a"}, {"month": "b", "total": 1}]}, "mark": "bar", "encoding": BAR}
    assert charts("draw_vega_lite", spec=spec)["warnings"] == ["1 of 2 rows have no value for 'total' and are left out"]


DATA = {"data": {"values": ROWS}}
BAD = {
    "data.url: files and addresses": {"data": {"url": "file:///etc/passwd"}, "mark": "bar", "encoding": BAR},
    r"layer\[0\].data.url": {**DATA, "layer": [{"data": {"url": "http://127.0.0.1/x.csv"}, "mark": "bar"}]},
    r"transform\[0\].from.data.url": {
        **DATA,
        "mark": "bar",
        "transform": [{"lookup": "month", "from": {"data": {"url": "x.json"}, "key": "month"}}],
    },
    "mark: image marks": {**DATA, "mark": {"type": "image"}, "encoding": {"x": BAR["x"]}},
    "encoding.url": {**DATA, "mark": "bar", "encoding": {"url": {"field": "month"}}},
    "mark: unknown mark 'lines'. Did you mean 'line'": {**DATA, "mark": "lines", "encoding": BAR},
    "mark: is missing": {**DATA, "encoding": BAR},
    "encodings: no such property. Did you mean 'encoding'": {**DATA, "mark": "bar", "encodings": BAR},
    "encoding.colour: no such channel. Did you mean 'color'": {**DATA, "mark": "bar", "encoding": {"colour": {}}},
    "encoding.x.field: the data has no field 'mont'. Did you mean 'month'": {
        **DATA,
        "mark": "bar",
        "encoding": {"x": {"field": "mont", "type": "ordinal"}},
    },
    "encoding.x.type: unknown type 'number'": {
        **DATA,
        "mark": "bar",
        "encoding": {"x": {"field": "month", "type": "number"}},
    },
    "data: there are no rows": {"mark": "bar", "encoding": BAR},
    "width: must be": {**DATA, "mark": "bar", "encoding": BAR, "width": 1e9},
    "this is Vega": {"marks": [], **DATA},
    "Unexpected token": {**DATA, "mark": "bar", "encoding": BAR, "transform": [{"calculate": "1 +* 2", "as": "z"}]},
    "data.sequence: makes more": {"data": {"sequence": {"start": 0, "stop": 1e12}}, "mark": "point"},
}  # fmt: skip


@pytest.mark.parametrize("words", BAD)
def test_a_bad_specification_is_told_which_part_and_a_right_one(charts, words):
    with pytest.raises(Refused, match=words) as refused:
        charts("draw_vega_lite", spec=BAD[words])
    assert '"encoding": {"x": {"field": "month", "type": "ordinal"}' in str(refused.value)


CHINESE = {"source": [{"月份": "一月", "销售额": 3}], "kind": "bar", "x": "月份", "y": "销售额", "title": "销售"}


def test_chinese_labels_have_glyphs_or_a_warning(charts, workspace, tmp_path):
    drawn = charts("draw_chart", file_name="cjk", **CHINESE)
    assert drawn["warnings"] == []
    with_font = (workspace / drawn["path"]).read_bytes()
    # The same machine without the extra and without a font list: packages shadowed by ones that fail to import.
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "cvttf_NotoSansCJK_Regular.py").write_text("raise ImportError")
    (shadow / "vl_convert.py").write_text("raise ImportError")
    with serving("charts", "--workspace", tmp_path, env={"PYTHONPATH": str(shadow), "PATH": ""}) as bare:
        with pytest.raises(Refused, match=r"orchestrator-mcp\[servers\]"):
            bare("draw_chart", source=ROWS, **LINE)
        (shadow / "vl_convert.py").unlink()
        drawn = bare("draw_chart", **CHINESE)
        assert 'pip install "orchestrator-mcp[cjk]"' in drawn["warnings"][0]
        assert (tmp_path / drawn["path"]).read_bytes() != with_font
        assert bare("draw_chart", source=ROWS, **LINE)["warnings"] == []


def test_the_file_works_alone_but_for_table_queries_and_never_through_a_link(tmp_path):
    alone, space, outside = tmp_path / "charts.py", tmp_path / "ws", tmp_path / "outside"
    alone.write_bytes((REPO / "mcp_servers" / "charts.py").read_bytes())
    space.mkdir()
    outside.mkdir()
    with serving(alone, "--workspace", space) as server:
        with pytest.raises(Refused, match=r"tables\.py, which is missing"):
            server("draw_chart", source=MONTHS, **LINE)
        assert server("draw_chart", source=ROWS, format="svg", **LINE)["points"] == 2
        (space / "out").rename(space / "before")
        (space / "out").symlink_to(outside)
        with pytest.raises(Refused, match="is a link"):
            server("draw_chart", source=ROWS, format="svg", **LINE)
    assert not list(outside.iterdir())


def test_tools_say_what_they_are_and_a_bad_workspace_is_exit_2(charts, tmp_path):
    tools = charts.tools()
    assert set(tools) == {"draw_chart", "draw_vega_lite"}
    for tool in tools.values():
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (False, False, False)
        assert hints.open_world_hint is False
        assert tool.title
        assert tool.output_schema["properties"]["warnings"]
    command = [sys.executable, "-P", REPO / "mcp_servers" / "charts.py", "--workspace", tmp_path / "none"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "not a folder" in ended.stderr
