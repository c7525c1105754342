"""MCP server `charts`: draw a chart from rows, a table query or a Vega-Lite specification, as a new PNG or SVG file.

    python -P charts.py --workspace DIR [--root DIR]

Files go to `<workspace>/out/` under a name that was free; nothing is ever overwritten. No specification can make the
renderer read a file or the network. One self-contained file, usable by any MCP host; needs `mcp` and
`vl-convert-python`. Only a source of the form {path, sql} also needs `tables.py` in the same folder.
"""

import argparse
import difflib
import importlib.util
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

Row = dict[str, Any]
Kind = Literal["line", "bar", "area", "scatter", "pie"]

WIDTH, HEIGHT, SCALE = 900, 500, 2
LARGEST = 4000  # width or height of a specification; the renderer dies of very large ones
MOST_ROWS = 50_000
SECONDS = 60
CJK = re.compile(
    "[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
STYLE: dict[str, Any] = {
    "background": "white",
    "padding": 20,
    "view": {"stroke": None},
    "title": {"anchor": "start", "fontSize": 20, "fontWeight": 600, "offset": 18, "color": "#222222"},
    "axis": {
        "labelFontSize": 13,
        "titleFontSize": 14,
        "titleFontWeight": "normal",
        "titlePadding": 12,
        "labelColor": "#444444",
        "titleColor": "#444444",
        "gridColor": "#e6e6e6",
        "domainColor": "#999999",
        "tickColor": "#999999",
        "labelOverlap": True,
        "labelLimit": 220,
    },
    "axisX": {"grid": False, "labelFlush": False, "labelSeparation": 8},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 8},
    "legend": {"labelFontSize": 13, "titleFontSize": 13, "titleFontWeight": "normal", "labelLimit": 220},
}
RIGHT = (
    '{"data": {"values": [{"month": "2025-01", "total": 120}, {"month": "2025-02", "total": 95}]}, "mark": "bar", '
    '"encoding": {"x": {"field": "month", "type": "ordinal"}, "y": {"field": "total", "type": "quantitative"}}}'
)


class TableQuery(BaseModel):
    """Rows from a table file: the file is the table `data` in the SQL."""

    path: str = Field(description="CSV, Parquet, JSON or Excel file, relative to the root folder")
    sql: str = Field(default="SELECT * FROM data", description="One SELECT over the table `data` (DuckDB)")


class Drawing(BaseModel):
    """The file that was written."""

    path: str = Field(description="Relative to the workspace, e.g. out/monthly-sales.png")
    absolute_path: str
    format: str
    width: int = Field(description="Pixels (PNG) or units (SVG)")
    height: int
    bytes: int
    points: int = Field(description="Rows of data drawn")
    warnings: list[str]


# ---------------------------------------------------------------- the simple form


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What draw_chart was asked for."""

    kind: Kind
    x: str
    y: tuple[str, ...]
    title: str
    series: str | None = None
    x_title: str | None = None
    y_title: str | None = None


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint for a name that is not among `names`."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def number(value: Any, where: str) -> float | int | None:
    """A cell as a number; None where it is missing."""
    if isinstance(value, str):
        text = re.sub(r"[\s,$€£¥]", "", value)
        if text.lower() in ("", "na", "n/a", "null", "none", "nan", "-"):
            return None
        try:
            value = float(text)
        except ValueError:
            raise ToolError(f"{where} must be numbers, but one is {value!r}. Give y a column of numbers.") from None
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        if value is None:
            return None
        raise ToolError(f"{where} must be numbers, but one is {value!r}. Give y a column of numbers.")
    return value if math.isfinite(value) else None


def long_rows(rows: Sequence[Row], form: Form) -> tuple[list[Row], list[str]]:
    """Rows of x, y and series under fixed names, without those that have no y; and warnings."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in (form.x, *form.y, *([form.series] if form.series else [])):
        if name not in columns:
            raise ToolError(f"No column {name!r} in the source.{nearest(name, columns)} Columns: {', '.join(columns)}.")
    result, missing = list[Row](), 0
    for row in rows:
        for name in form.y:
            value = number(row.get(name), f"The values of {name!r}")
            series = row.get(form.series) if form.series else name
            if value is None or row.get(form.x) is None:
                missing += 1
            else:
                result.append({"x": row[form.x], "y": value, "series": str(series)})
    if not result:
        raise ToolError(f"Nothing to draw: no row has a value for {form.x!r} and {', '.join(form.y)}.")
    return result, [f"{missing} of {missing + len(result)} points have no value and are left out"] if missing else []


def scale_of(values: Sequence[Any], kind: Kind) -> str:
    """What x is: `month`, `date`, `time`, `number`, or `name` (in the given order)."""
    texts = [str(v) for v in values]
    if all(re.fullmatch(r"\d{4}-\d\d(-01([T ]00:00(:00)?)?)?", t) for t in texts):
        return "month" if len(set(texts)) > 1 or len(texts[0]) == 7 else "date"
    if all(re.fullmatch(r"\d{4}-\d\d-\d\d([T ]00:00:00)?", t) for t in texts):
        return "date"
    if all(re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", t) for t in texts):
        return "time"
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    years = all(re.fullmatch(r"(19|20)\d\d", t) for t in texts)
    return "number" if numeric and not years and kind in ("line", "area", "scatter") else "name"


def ordered(rows: list[Row], scale: str) -> list[Row]:
    """Rows in the order of x where x has one: dates, numbers, names of months, quarters; else as given."""
    if all(re.match(r"\d{4}\b", str(row["x"])) for row in rows):
        return sorted(rows, key=lambda row: str(row["x"]))
    if scale == "number" or all(isinstance(row["x"], int | float) for row in rows):
        return sorted(rows, key=lambda row: row["x"])
    if all(str(row["x"])[:3].title() in MONTHS for row in rows):
        return sorted(rows, key=lambda row: MONTHS.index(str(row["x"])[:3].title()))
    return rows


def x_channel(rows: list[Row], scale: str, form: Form) -> Row:
    """The x encoding; bars get one band a value, the other kinds a true time axis."""
    title = form.x_title or heading(form.x)
    distinct = len({row["x"] for row in rows})
    if scale == "number":
        spread = {"zero": False, "nice": True}
        return {"field": "x", "type": "quantitative", "title": title, "scale": spread, "axis": {"format": "~r"}}
    if scale == "name" or form.kind == "bar":
        for row in rows:
            row["x"] = label(str(row["x"]), scale)
        long = distinct > 12 or max(len(row["x"]) for row in rows) * distinct > 100
        axis = {"labelAngle": -40 if long else 0}
        return {"field": "x", "type": "ordinal", "sort": None, "title": title, "axis": axis}
    for row in rows:
        text = str(row["x"]).replace(" ", "T")
        # Without a zone JavaScript takes a date for UTC but a time for local: say UTC for both.
        row["x"] = text if scale != "time" or re.search(r"(Z|[+-]\d\d:\d\d)$", text) else text + "Z"
    axis: Row = {"labelAngle": 0}
    if scale == "month":
        year = "datum.index == 0 || utcmonth(datum.value) == 0 ? utcFormat(datum.value, '%Y') : ''"
        axis["labelExpr"] = f"[utcFormat(datum.value, '%b'), {year}]"
        if distinct <= 24:
            axis["tickCount"] = {"interval": "month", "step": 1}
    return {"field": "x", "type": "temporal", "title": title, "scale": {"type": "utc"}, "axis": axis}


def label(text: str, scale: str) -> str:
    """The text of one band: months and dates as people write them."""
    if scale == "month":
        return f"{MONTHS[int(text[5:7]) - 1]} {text[:4]}"
    return f"{int(text[8:10])} {MONTHS[int(text[5:7]) - 1]} {text[:4]}" if scale == "date" else text


def heading(name: str) -> str:
    """A column's name as a title."""
    text = re.sub(r"[_\s]+", " ", name).strip()
    return text[:1].upper() + text[1:]


def y_channel(rows: list[Row], form: Form) -> Row:
    """The y encoding: readable numbers, and zero in view unless the values are far from it."""
    values = [row["y"] for row in rows]
    low, high = min(values), max(values)
    zero = form.kind in ("bar", "area") or (low < 0 < high) or (form.kind == "line" and 0 <= low < 0.6 * high)
    form_ = ".3~s" if max(abs(low), abs(high)) >= 10_000_000 else ",.4~f" if high - low < 1 else ",.2~f"
    title = form.y_title or heading(form.y[0] if len(form.y) == 1 else "value")
    axis = {"format": form_, "tickCount": 6}
    return {"field": "y", "type": "quantitative", "title": title, "scale": {"zero": zero, "nice": True}, "axis": axis}


def chart_spec(rows: Sequence[Row], form: Form) -> tuple[Row, list[str]]:
    """The Vega-Lite specification of the simple form, and warnings."""
    alone = form.series in form.y or (form.series == form.x and form.kind in ("line", "area"))
    form = replace(form, series=None) if alone else form
    data, warnings = long_rows(rows, form)
    if alone:
        warnings.append("series is left out: by that column every point would be a line of its own")
    scale = scale_of([row["x"] for row in data], form.kind)
    data = ordered(data, scale)
    many = len({row["series"] for row in data}) > 1
    twice = sum(n > 1 for n in Counter((str(row["x"]), row["series"]) for row in data).values())
    if twice and form.kind != "scatter":
        warnings.append(f"{twice} values of {form.x!r} have several points: total them in the source (GROUP BY)")
    if form.kind == "pie":
        return pie_spec(data, scale, form, warnings)
    encoding: Row = {"x": x_channel(data, scale, form), "y": y_channel(data, form)}
    if many:
        title = heading(form.series) if form.series else None
        encoding["color"] = {"field": "series", "type": "nominal", "title": title, "sort": None}
        if form.kind == "bar":
            encoding["xOffset"] = {"field": "series", "sort": None}
    few = len(data) <= 120
    marks: dict[str, Row] = {
        "line": {"type": "line", "strokeWidth": 2.5, "point": {"filled": True, "size": 60} if few else False},
        "bar": {"type": "bar", "cornerRadiusEnd": 2},
        "area": {"type": "area", "opacity": 0.6, "line": {"strokeWidth": 2}},
        "scatter": {"type": "point", "filled": True, "size": 60 if few else 25, "opacity": 0.75},
    }
    return framed({"mark": marks[form.kind], "encoding": encoding}, data, form), warnings


def pie_spec(data: list[Row], scale: str, form: Form, warnings: list[str]) -> tuple[Row, list[str]]:
    """A pie: the legend carries names and shares, so that small slices stay readable."""
    if any(row["y"] < 0 for row in data):
        raise ToolError("A pie cannot show negative values. Use kind 'bar'.")
    total = sum(row["y"] for row in data)
    if total == 0:
        raise ToolError("A pie cannot show values that are all zero. Use kind 'bar'.")
    if len(data) > 8:
        warnings.append(f"a pie of {len(data)} slices is hard to read: a bar chart shows them better")
    if scale == "name":
        data = sorted(data, key=lambda row: -row["y"])
    for row in data:
        row["x"] = f"{label(str(row['x']), scale)} ({row['y'] / total:.1%})"
    color = {"field": "x", "type": "nominal", "sort": None, "title": form.x_title or heading(form.x)}
    for position, row in enumerate(data):
        row["order"] = position
    order = {"field": "order", "type": "quantitative"}
    encoding: Row = {"theta": {"field": "y", "type": "quantitative", "stack": True}, "color": color, "order": order}
    mark = {"type": "arc", "stroke": "white", "strokeWidth": 2}
    return framed({"mark": mark, "encoding": encoding}, data, form), warnings


def framed(spec: Row, data: list[Row], form: Form) -> Row:
    """`spec` with its data, title and size: the whole picture is WIDTH x HEIGHT."""
    size = {"width": WIDTH, "height": HEIGHT, "autosize": {"type": "fit", "contains": "padding"}}
    return {"title": form.title, "data": {"values": data}, **size, **spec, "config": STYLE}


# ---------------------------------------------------------------- checking a specification

# fmt: off
MARKS = [
    "arc", "area", "bar", "boxplot", "circle", "errorband", "errorbar", "geoshape", "line", "point", "rect", "rule",
    "square", "text", "tick", "trail",
]
CHANNELS = [
    "x", "y", "x2", "y2", "xError", "yError", "xError2", "yError2", "xOffset", "yOffset", "theta", "theta2", "radius",
    "radius2", "color", "fill", "stroke", "opacity", "fillOpacity", "strokeOpacity", "strokeWidth", "strokeDash",
    "size", "shape", "angle", "text", "tooltip", "href", "description", "detail", "key", "order", "time", "facet",
    "row", "column", "longitude", "latitude", "longitude2", "latitude2",
]
TYPES = [
    "quantitative", "temporal", "ordinal", "nominal", "geojson",
]
COMPOSED = [
    "layer", "concat", "hconcat", "vconcat",
]
VIEW = [
    "$schema", "align", "autosize", "background", "bounds", "center", "columns", "concat", "config", "data",
    "datasets", "description", "encoding", "facet", "height", "hconcat", "layer", "mark", "name", "padding", "params",
    "projection", "repeat", "resolve", "spacing", "spec", "title", "transform", "usermeta", "vconcat", "view", "width",
]
# fmt: on
# Transforms whose new columns depend on their data or have default names: fields are not checked after them.
OPEN_ENDED = {"fold", "pivot", "flatten", "lookup", "density", "regression", "loess", "quantile", "impute", "extent"}


def wrong(where: str, what: str) -> ToolError:
    """The error for one part of a specification, with a right one to compare."""
    return ToolError(f"Bad specification at {where}: {what}\nA right one: {RIGHT}")


def check(spec: Row) -> int:
    """Raise a ToolError that names the first wrong part; returns the number of inline rows."""
    if "marks" in spec or "/schema/vega/" in str(spec.get("$schema", "")):
        raise wrong("the top", "this is Vega; draw_vega_lite takes Vega-Lite (`mark`, `encoding`).")
    no_urls(spec, "the top")
    rows = check_view(spec, "the top", None, cast("Row", spec.get("datasets") or {}))
    if rows == 0:
        raise wrong("data", "there are no rows. Give `data.values` (a list of objects), or the argument `source`.")
    return rows


def no_urls(node: Any, where: str) -> None:
    """Refuse everything that makes the renderer read a file or the network, and sizes that it cannot draw."""
    if isinstance(node, list):
        for position, item in enumerate(cast("list[Any]", node)):
            no_urls(item, f"{where}[{position}]")
    if not isinstance(node, dict):
        return
    for key, value in cast("Row", node).items():
        at = f"{where}.{key}" if where != "the top" else key
        if key == "url":
            raise wrong(at, "files and addresses are not read. Put the rows in `data.values`, or use `source`.")
        if key in ("width", "height", "step") and isinstance(value, int | float) and not 0 < value <= LARGEST:
            raise wrong(at, f"must be above 0 and at most {LARGEST}.")
        if key == "sequence" and isinstance(value, dict):
            size = cast("Row", value)
            start, stop, step = (size.get(k, d) for k, d in (("start", 0), ("stop", 0), ("step", 1)))
            if not all(isinstance(v, int | float) for v in (start, stop, step)) or not step:
                raise wrong(at, "needs numbers start, stop and step.")
            if abs((stop - start) / step) > MOST_ROWS:
                raise wrong(at, f"makes more than {MOST_ROWS} rows.")
        if key not in ("values", "datasets"):
            no_urls(value, at)


def check_view(view: Row, where: str, known: set[str] | None, datasets: Row) -> int:
    """Check one view and those inside it. `known` are the fields of the data above (None: not known)."""
    prefix = "" if where == "the top" else f"{where}."
    for key in view:
        if key not in VIEW:
            raise wrong(f"{prefix}{key}", f"no such property.{nearest(key, VIEW)}")
    rows, known = own_data(view, prefix, known, datasets)
    inner = [(f"{prefix}{k}[{n}]", v) for k in COMPOSED for n, v in enumerate(cast("list[Any]", view.get(k) or []))]
    if "spec" in view:
        inner.append((f"{prefix}spec", view["spec"]))
    if not inner and "mark" not in view:
        raise wrong(f"{prefix}mark", f"is missing. One of: {', '.join(MARKS)}.")
    if "mark" in view:
        check_mark(view["mark"], f"{prefix}mark")
    if "encoding" in view:
        check_encoding(view["encoding"], f"{prefix}encoding", known)
    for at, child in inner:
        if not isinstance(child, dict):
            raise wrong(at, "must be an object.")
        rows += check_view(cast("Row", child), at, known, datasets)
    return rows


def own_data(view: Row, prefix: str, known: set[str] | None, datasets: Row) -> tuple[int, set[str] | None]:
    """Rows of the view's own data, and the fields that its encoding may name."""
    rows = 0
    if view.get("data") is not None:
        data: Any = view["data"]
        if not isinstance(data, dict):
            raise wrong(f"{prefix}data", 'must be {"values": [rows]}.')
        data = cast("Row", data)
        values: Any = data.get("values", datasets.get(str(data.get("name"))))
        if isinstance(values, list):
            items = cast("list[Any]", values)
            rows, records = len(items), [cast("Row", v) for v in items if isinstance(v, dict)]
            known = {name for record in records for name in record} if len(records) == rows else {"data"}
        else:
            # Rows made by the renderer itself: text to parse, a sequence, a graticule.
            rows, known = int(bool(data)), None
    for step in cast("list[Any]", view.get("transform") or []):
        if not isinstance(step, dict) or OPEN_ENDED & cast("Row", step).keys():
            return rows, None
        for name in re.findall(r'"as": ("[^"]*"|\[[^\]]*\])', json.dumps(step, ensure_ascii=False)):
            known = known | set(re.findall(r'"([^"]*)"', name)) if known is not None else None
    return rows, known


def check_mark(mark: Any, where: str) -> None:
    """A known mark, and none that loads pictures."""
    kind = cast("Row", mark).get("type") if isinstance(mark, dict) else mark
    if kind == "image":
        raise wrong(where, "image marks would read files or addresses, and are not drawn.")
    if kind not in MARKS:
        raise wrong(where, f"unknown mark {kind!r}.{nearest(str(kind), MARKS)} One of: {', '.join(MARKS)}.")


def check_encoding(encoding: Any, where: str, known: set[str] | None) -> None:
    """Known channels and types, and fields that the data has."""
    if not isinstance(encoding, dict):
        raise wrong(where, "must be an object of channels.")
    for channel, definition in cast("Row", encoding).items():
        at = f"{where}.{channel}"
        if channel not in CHANNELS:
            raise wrong(at, f"no such channel.{nearest(channel, CHANNELS)}")
        parts = cast("list[Any]", definition if isinstance(definition, list) else [definition])
        for part in parts:
            if not isinstance(part, dict):
                raise wrong(at, 'must be an object such as {"field": "month", "type": "ordinal"}.')
            given = cast("Row", part)
            if "type" in given and given["type"] not in TYPES:
                kind = given["type"]
                raise wrong(
                    f"{at}.type", f"unknown type {kind!r}.{nearest(str(kind), TYPES)} One of: {', '.join(TYPES)}."
                )
            name = given.get("field")
            if known is not None and isinstance(name, str) and not has_field(name, known):
                fields = sorted(known)
                raise wrong(
                    f"{at}.field",
                    f"the data has no field {name!r}.{nearest(name, fields)} It has: {', '.join(fields)}.",
                )


def has_field(name: str, known: set[str]) -> bool:
    """Whether the data has it: `a.b` and `a['b']` look into `a`, `a\\.b` is a name with a dot."""
    return name.replace("\\", "") in known or re.split(r"(?<!\\)[.\[]", name)[0].replace("\\", "") in known


def blanks(spec: Row) -> list[str]:
    """Warnings for missing values in the quantitative fields of a single view."""
    values: Any = cast("Row", spec.get("data") or {}).get("values") or []
    rows = (
        [cast("Row", r) for r in cast("list[Any]", values) if isinstance(r, dict)] if isinstance(values, list) else []
    )
    found = list[str]()
    for definition in cast("Row", spec.get("encoding") or {}).values():
        given = cast("Row", definition) if isinstance(definition, dict) else {}
        if given.get("type") == "quantitative" and (name := given.get("field")):
            missing = sum(row.get(str(name)) in (None, "") for row in rows)
            if missing:
                found.append(f"{missing} of {len(rows)} rows have no value for {name!r} and are left out")
    return found


# ---------------------------------------------------------------- fonts


def has_cjk(spec: Row) -> bool:
    """Whether any text of the specification or its data is Chinese, Japanese or Korean."""
    return bool(CJK.search(json.dumps(spec, ensure_ascii=False)))


def cjk_fonts() -> bool:
    """Make CJK glyphs available to the renderer: from the package of the extra `cjk`, or from the system."""
    try:
        # The extra `cjk`, or not.
        import cvttf_NotoSansCJK_Regular as package  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]
        import vl_convert  # noqa: PLC0415 - see picture
    except ImportError:
        return system_cjk()
    vl_convert.register_font_directory(str(Path(str(package.__file__)).parent))
    return True


def system_cjk() -> bool:
    """Whether the system has a CJK font. macOS and Windows come with one."""
    if sys.platform in ("darwin", "win32"):
        return True
    if not (command := shutil.which("fc-list")):
        return False
    listed = subprocess.run([command, ":lang=zh", "family"], capture_output=True, timeout=10, check=False)
    return bool(listed.stdout.strip())


# ---------------------------------------------------------------- pictures and files


def picture(spec: Row, format_: str) -> tuple[bytes, list[str]]:
    """Render; blocking. Returns the file's bytes and warnings."""
    try:
        import vl_convert  # noqa: PLC0415 - heavy and optional: the server starts and lists its tools without it
    except ImportError:
        raise ToolError('vl-convert is missing. Install it: pip install "orchestrator-mcp[servers]"') from None
    warnings = list[str]()
    if has_cjk(spec):
        if not cjk_fonts():
            warnings.append(
                "no font for Chinese, Japanese or Korean text on this machine: it shows as empty boxes. "
                'Add one: pip install "orchestrator-mcp[cjk]", then draw again'
            )
        elif format_ == "svg":
            warnings.append("an SVG uses the fonts of the machine that shows it; a PNG shows CJK text everywhere")
    text = json.dumps(spec)
    try:
        if format_ == "svg":
            return vl_convert.vegalite_to_svg(text, allowed_base_urls=[]).encode(), warnings
        return vl_convert.vegalite_to_png(text, scale=SCALE, allowed_base_urls=[]), warnings
    except ValueError as error:
        lines = [line for line in str(error).splitlines() if not line.lstrip().startswith("at ")]
        raise wrong("a part the renderer names", " ".join(lines)[:400]) from None


def size_of(picture_: bytes) -> tuple[int, int]:
    """Width and height out of the file itself."""
    if picture_.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", picture_[16:24])
        return width, height
    found = re.search(rb'<svg[^>]*? width="([\d.]+)"[^>]*? height="([\d.]+)"', picture_)
    return (round(float(found[1])), round(float(found[2]))) if found else (0, 0)


def file_stem(name: str) -> str:
    """A safe file name without its ending."""
    stem = re.sub(r"\.(png|svg)$", "", name.strip(), flags=re.IGNORECASE)
    stem = re.sub(r"[^\w.-]+", "-", stem.replace("\\", "/").rsplit("/", 1)[-1]).strip("-. ")
    return stem[:60].rstrip("-.") or "chart"


def write_new(folder: Path, stem: str, format_: str, data: bytes) -> Path:
    """Write whole and under a name that was free: `stem.png`, `stem-2.png`, …"""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() != folder:
        raise ToolError(f"{folder} is a link to {folder.resolve()}; charts are written inside the workspace only.")
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".chart-")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        for count in range(1, 10_000):
            target = folder / (f"{stem}.{format_}" if count == 1 else f"{stem}-{count}.{format_}")
            try:
                os.link(temporary, target)  # unlike a rename, fails when the name is taken
            except FileExistsError:
                continue
            return target
    finally:
        os.unlink(temporary)
    raise ToolError(f"No free name for {stem!r} in {folder}.")


# ---------------------------------------------------------------- the server


@dataclass(slots=True, kw_only=True)
class Charts:
    """Draws into one workspace; table queries read from `roots`."""

    workspace: Path
    roots: Sequence[Path]
    cache: Path
    tables: Any = field(default=None)

    async def rows(self, source: Any, ctx: Context) -> list[Row]:
        """The rows of a source: given, or the result of a table query."""
        if isinstance(source, TableQuery):
            page = await self.reader().query(source.sql, source.path, limit=MOST_ROWS, ctx=ctx)
            if page.total_rows > MOST_ROWS:
                raise ToolError(f"The query gives {page.total_rows} rows; at most {MOST_ROWS} are drawn. Group them.")
            rows: list[Row] = page.rows
        else:
            rows = source
        if not rows:
            raise ToolError("The source has no rows, so there is nothing to draw.")
        if len(rows) > MOST_ROWS:
            raise ToolError(f"{len(rows)} rows; at most {MOST_ROWS} are drawn. Group them first.")
        return rows

    def reader(self) -> Any:
        """The reading code of the `tables` server, from the file beside this one (-P hides the folder from import)."""
        if self.tables is None:
            path = Path(__file__).with_name("tables.py")
            spec = importlib.util.spec_from_file_location("orchestrator_tables_server", path)
            if not path.is_file() or spec is None or spec.loader is None:
                raise ToolError(
                    f"A source of the form {{path, sql}} needs {path}, which is missing. Give rows instead."
                )
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.tables = module.Tables(roots=self.roots, cache=self.cache)
        return self.tables

    async def draw(self, spec: Row, points: int, warnings: list[str], name: str, format_: str | None) -> CallToolResult:
        """Render and write one picture."""
        kind = format_ or ("svg" if name.lower().endswith(".svg") else "png")
        try:
            with anyio.fail_after(SECONDS):
                data, more = await anyio.to_thread.run_sync(picture, spec, kind, abandon_on_cancel=True)
        except TimeoutError:
            raise ToolError(f"Drawing took more than {SECONDS} s. Draw fewer points: group or filter them.") from None
        try:
            path = await anyio.to_thread.run_sync(write_new, self.workspace / "out", file_stem(name), kind, data)
        except OSError as error:
            raise ToolError(f"The picture cannot be written: {error}.") from None
        width, height = size_of(data)
        drawing = Drawing(
            path=path.relative_to(self.workspace).as_posix(),
            absolute_path=str(path),
            format=kind,
            width=width,
            height=height,
            bytes=len(data),
            points=points,
            warnings=[*warnings, *more],
        )
        # The SDK's own text would be indented JSON, at twice the tokens.
        content = drawing.model_dump(mode="json")
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return CallToolResult(content=[TextContent(text=text)], structured_content=content)


NEW_FILE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
Format = Annotated[Literal["png", "svg"] | None, Field(description="png (default) or svg")]
Name = Annotated[str | None, Field(description="Name of the new file, e.g. monthly-sales; never overwrites")]
Source = Annotated[
    TableQuery | list[Row],
    Field(description='The rows, [{"month": "2025-01", "total": 120.5}, …], or a table query, {"path": …, "sql": …}'),
]


def build(charts: Charts) -> MCPServer:
    """The MCP server over `charts`."""
    server = MCPServer(
        "charts",
        title="Charts",
        instructions="draw_chart for the usual kinds of chart; draw_vega_lite for anything else.",
        log_level="ERROR",
    )

    @server.tool(
        title="Draw a chart",
        description="Draw a line, bar, area, scatter or pie chart and save it as a new file under out/ in the "
        "workspace; returns its path. Use it once the numbers are known: source is the rows themselves, or {path, sql} "
        "of a table file. y may be several columns. Totals are not made here: group in the SQL. For facets or layers "
        "use draw_vega_lite. Not for reading data or looking at pictures.",
        annotations=NEW_FILE,
    )
    async def draw_chart(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        kind: Annotated[
            Kind, Field(description="line for change over time, bar to compare, pie for shares of a whole")
        ],
        x: Annotated[str, Field(description="Column of the x axis (the slices of a pie), e.g. month")],
        y: Annotated[str | list[str], Field(description="Column of numbers, e.g. total; or several columns")],
        source: Source,
        title: Annotated[str, Field(description="Title over the chart")],
        ctx: Context,
        series: Annotated[str | None, Field(description="Column that splits the data into colours")] = None,
        x_title: Annotated[str | None, Field(description="Title of the x axis; default: the column's name")] = None,
        y_title: Annotated[
            str | None, Field(description="Title of the y axis, with the unit, e.g. Sales (USD)")
        ] = None,
        format: Format = None,
        file_name: Name = None,
    ) -> Annotated[CallToolResult, Drawing]:
        ys = (y,) if isinstance(y, str) else tuple(dict.fromkeys(y))
        if not ys or (len(ys) > 1 and (series or kind == "pie")):
            raise ToolError("Several y columns make their own series: leave out `series`, and give a pie one y.")
        form = Form(kind=kind, x=x, y=ys, title=title, series=series, x_title=x_title, y_title=y_title)
        spec, warnings = chart_spec(await charts.rows(source, ctx), form)
        return await charts.draw(spec, len(spec["data"]["values"]), warnings, file_name or title, format)

    @server.tool(
        title="Draw a Vega-Lite specification",
        description="Draw a full Vega-Lite 6 specification and save it as a new file under out/ in the workspace; "
        "returns its path. Use it for facets, layers, heat maps, box plots and the like. Rows go into data.values, or "
        "source fills them in; no address or file is loaded. For a plain line, bar, area, scatter or pie chart "
        "draw_chart is simpler.",
        annotations=NEW_FILE,
    )
    async def draw_vega_lite(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        spec: Annotated[Row, Field(description=f"Vega-Lite, e.g. {RIGHT}")],
        ctx: Context,
        source: Annotated[TableQuery | list[Row] | None, Field(description="Rows or {path, sql} for `data`")] = None,
        format: Format = None,
        file_name: Name = None,
    ) -> Annotated[CallToolResult, Drawing]:
        given = dict(spec)
        if source is not None:
            given["data"] = {"values": await charts.rows(source, ctx)}
        points = check(given)
        config: Any = given.get("config")
        whole: Row = {**given, "config": merged(STYLE, cast("Row", config) if isinstance(config, dict) else {})}
        if "mark" in given or "layer" in given:
            whole = {"width": WIDTH - 200, "height": HEIGHT - 120, **whole}
        title: Any = given.get("title")
        text = cast("Row", title).get("text") if isinstance(title, dict) else title
        return await charts.draw(whole, points, blanks(given), file_name or str(text or "chart"), format)

    return server


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Row:
    """`base` with the values of `over`, nested objects merged."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        result[key] = merged(cast("Row", old), cast("Row", value)) if both else value
    return result


@contextmanager
def traced(service: str) -> Generator[None]:
    """Export the SDK's spans by OTLP while inside, where the environment names a collector."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        yield
        return
    import threading  # noqa: PLC0415 - all of this only for those who trace

    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    class Calls(BatchSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            if not span.name.startswith("notifications/"):
                super().on_end(span)

    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
    provider, exporter = TracerProvider(resource=resource, shutdown_on_exit=False), OTLPSpanExporter()
    provider.add_span_processor(Calls(exporter, schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # force_flush keeps no deadline with a dead collector; a thread and the exporter's end do.
        flush = threading.Thread(target=provider.force_flush, daemon=True)
        flush.start()
        flush.join(2)
        exporter.shutdown()
        provider.shutdown()


def folders(given: Sequence[str], parser: argparse.ArgumentParser) -> list[Path]:
    """The folders as real paths; ends with exit code 2 when one is none."""
    for path in given:
        if not Path(path).is_dir():
            parser.error(f"not a folder: {path}")
    return [Path(path).resolve() for path in given]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve over stdio until the client hangs up."""
    parser = argparse.ArgumentParser(prog="charts", description="MCP server: charts as new files in <workspace>/out/.")
    parser.add_argument("--workspace", default=".", metavar="DIR", help="charts go to DIR/out/ (default: here)")
    parser.add_argument("--root", action="append", metavar="DIR", help="folder of table files (default: the workspace)")
    arguments = parser.parse_args(argv)
    (workspace,) = folders([arguments.workspace], parser)
    roots = folders(arguments.root or [arguments.workspace], parser)
    with tempfile.TemporaryDirectory(prefix="charts-") as cache, traced("charts"):
        build(Charts(workspace=workspace, roots=roots, cache=Path(cache))).run("stdio")


if __name__ == "__main__":
    sys.exit(main())
