"""The `tables` server: what it reads, types, refuses and reports."""

import csv
import importlib.util
import re
import subprocess
import sys
import threading
from collections import defaultdict
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from stdio import REPO, SALES, Refused, serving

MONTHS = "SELECT strftime(date, '%Y-%m') AS month, SUM(amount) AS total FROM data GROUP BY month ORDER BY month"


def monthly_totals() -> dict[str, Decimal]:
    """The twelve totals again, without DuckDB or the server's code."""
    totals: dict[str, Decimal] = defaultdict(Decimal)
    with SALES.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            form = "%m/%d/%Y" if "/" in row["date"] else "%Y-%m-%d"
            if row["amount"]:
                totals[datetime.strptime(row["date"], form).strftime("%Y-%m")] += Decimal(
                    row["amount"].replace(",", "")
                )
    return totals


def test_the_example_is_what_its_script_makes(tmp_path):
    again = tmp_path / "again.csv"
    subprocess.run([sys.executable, REPO / "examples" / "make_sales.py", again], check=True)
    assert again.read_bytes() == SALES.read_bytes()
    text = SALES.read_text(encoding="utf-8")
    assert text.startswith("\ufeff")
    assert len(text.splitlines()) == 1201
    for mess in (r',"1,000",', r',"\d,\d{3}\.\d\d",', r",,", r"^\d{4}-\d\d-\d\d,", r"^\d{1,2}/(1[3-9]|2\d|3\d)/2025,"):
        assert re.search(mess, text, re.MULTILINE), mess


def test_the_example_is_described_and_summed_to_the_cent(tables):
    about = tables("describe_table", path="examples/sales.csv")
    assert about["rows"] == 1200
    assert [(c["name"], c["type"]) for c in about["columns"]] == [
        ("date", "DATE"),
        ("amount", "DECIMAL(18,2)"),
        ("region", "VARCHAR"),
    ]
    assert len(about["first_rows"]) == 10
    assert about["first_rows"][9] == {"date": "2025-01-03", "amount": 409.24, "region": "South"}
    assert about["columns"][1]["blanks"] == 20
    assert "month first" in about["columns"][0]["notes"][0]
    assert "BOM" in about["format"]
    page = tables("query_table", path="examples/sales.csv", sql=MONTHS)
    got = {row["month"]: Decimal(str(row["total"])) for row in page["rows"]}
    assert got == monthly_totals()
    assert len(got) == 12
    # The ways in which models name the table.
    for name in ("sales", "'examples/sales.csv'", '"sales.csv"', "DATA"):
        page = tables("query_table", path="examples/sales.csv", sql=f"SELECT count(*) AS n FROM {name};")
        assert page["rows"] == [{"n": 1200}]


def test_pages_are_stable_complete_and_exact(tmp_path, tables):
    (tmp_path / "n.csv").write_text("n\n" + "\n".join(map(str, range(250))))

    seen, offset = [], 0
    while offset is not None:
        page = tables(
            "query_table", path=str(tmp_path / "n.csv"), sql="SELECT n FROM data ORDER BY n DESC", offset=offset
        )
        assert page["total_rows"] == 250
        seen += [row["n"] for row in page["rows"]]
        offset = page["next_offset"]
    assert seen == list(range(249, -1, -1))
    exact = "SELECT 123456789012345678.25 AS big, 12345.60 AS cents, 'nan'::DOUBLE AS nan, DATE '2025-03-09' AS d"
    page = tables("query_table", path=str(tmp_path / "n.csv"), sql=exact)
    assert page["rows"] == [{"big": "123456789012345678.25", "cents": 12345.6, "nan": "nan", "d": "2025-03-09"}]
    page = tables("query_table", path=str(tmp_path / "n.csv"), sql="SELECT 1 AS a, 2 AS a")
    assert page["rows"] == [{"a": 1, "a_1": 2}]
    page = tables(
        "query_table", path=str(tmp_path / "n.csv"), sql="PIVOT (SELECT n % 2 AS p FROM data) ON p USING count(*)"
    )
    assert page["total_rows"] == 1


FORBIDDEN = {
    "SELECT * FROM read_csv('/etc/passwd')": "cannot read",
    "SELECT * FROM '/etc/passwd'": "does not exist",
    "SELECT * FROM read_text('{secret}')": "cannot read",
    "SELECT * FROM read_blob('{secret}')": "cannot read",
    "SELECT * FROM glob('/etc/*')": "cannot read",
    "SELECT * FROM read_csv('https://example.com/a.csv')": "",
    "SELECT * FROM parquet_scan('s3://bucket/a.parquet')": "",
    "COPY data TO '{root}/out.csv'": "Only one SELECT",
    "COPY (SELECT 1) TO '/tmp/out.csv'": "Only one SELECT",
    "ATTACH '{root}/x.db'": "Only one SELECT",
    "INSTALL httpfs": "Only one SELECT",
    "LOAD httpfs": "Only one SELECT",
    "PRAGMA version": "Only one SELECT",
    "SET enable_external_access=true": "Only one SELECT",
    "CREATE TABLE t AS SELECT 1": "Only one SELECT",
    "DROP VIEW data": "Only one SELECT",
    "DELETE FROM data": "Only one SELECT",
    "SELECT 1; SELECT 2": "Only one SELECT",
    "SELECT 1); COPY data TO '{root}/out.csv'; SELECT (1": "",
    "SELECT 1) ; DROP VIEW data --": "",
    "WITH x AS (INSERT INTO data VALUES (1) RETURNING *) SELECT * FROM x": "",
    "SELECT getenv('HOME')": "",
    "SELECT * FROM con": "does not exist",
    "EXPLAIN SELECT 1": "Only one SELECT",
    "": "got nothing",
}


def test_sql_reaches_nothing_but_the_table(tmp_path, tables):
    root = tmp_path / "root"
    root.mkdir()
    (root / "n.csv").write_text("n\n1\n2\n")
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cret")
    before = sorted(tmp_path.rglob("*"))

    for sql, words in FORBIDDEN.items():
        with pytest.raises(Refused) as refused:
            tables("query_table", path=str(root / "n.csv"), sql=sql.format(root=root, secret=secret))
        assert words in str(refused.value), sql
        assert "s3cret" not in str(refused.value)
    page = tables("query_table", path=str(root / "n.csv"), sql="SELECT sum(n) AS s FROM data -- still there")
    assert page["rows"] == [{"s": 3}]
    with pytest.raises(Refused, match=r'(?s)Candidate bindings: "n".*data: n BIGINT'):
        tables("query_table", path=str(root / "n.csv"), sql="SELECT m FROM data")
    assert sorted(tmp_path.rglob("*")) == before


def test_paths_stay_inside_the_roots(tmp_path):
    root, other, outside = tmp_path / "root", tmp_path / "other", tmp_path / "outside"
    for folder in (root, other, outside, root / "sub"):
        folder.mkdir()
    for file in (root / "in.csv", other / "too.csv", outside / "out.csv", root / "a*[b].csv"):
        file.write_text("n\n1\n")
    (root / "link.csv").symlink_to(outside / "out.csv")
    (root / "folder").symlink_to(outside)

    with serving("tables", "--root", root, "--root", other) as call:
        for path in ("in.csv", "./sub/../in.csv", str(root / "in.csv"), str(other / "too.csv"), "a*[b].csv"):
            assert call("describe_table", path=path)["rows"] == 1
        for path in ("../outside/out.csv", str(outside / "out.csv"), "link.csv", "folder/out.csv", "/etc/passwd"):
            with pytest.raises(Refused, match="outside the folders") as refused:
                call("describe_table", path=path)
            assert str(root) in str(refused.value)
            with pytest.raises(Refused, match="outside the folders"):
                call("query_table", path="in.csv", others={"o": path}, sql="SELECT * FROM o")
        for path, words in {"im.csv": "in.csv", "sub": "folder", "a\0b": "Bad path", "nowhere/x.csv": "in.csv"}.items():
            with pytest.raises(Refused, match=words):
                call("describe_table", path=path)
        page = call(
            "query_table", path="in.csv", others={"o": str(other / "too.csv")}, sql="FROM data JOIN o USING (n)"
        )
        assert page["total_rows"] == 1


ODD = {
    "bom_crlf.csv": b"\xef\xbb\xbfa,b\r\n1,x\r\n2,y\r\n",
    "mixed_ends.csv": b"a,b\r\n1,x\n2,y\r\n",
    "semicolon.csv": "betrag;name\n1.234,50;Zürich\n-12,5;Köln\n".encode("cp1252"),
    "tab.tsv": b"a\tb\n1\tx, y\n",
    "chinese.csv": "日期,金额,地区\n2025年3月9日,￥1234.50,北京\n"
    "2025-03-10,“x”,上海\n2025/3/11,5,广州\n2025.3.12,6,深圳\n"
    "2025-3-13,7,杭州\n2025-3-14,8,杭州\n".encode("gb18030"),
    "quoted.csv": b'a,b\n1,"two\nlines, and ""quotes"""\n2,x\n',
    "names.csv": b"a,,a,A\n1,2,3,4\n",
    "ragged.csv": b"a,b\n1\n2,x,extra\n3,y,\n4,z\n",
    "header.csv": b"a,b\n",
    "headless.csv": b"1,2025-01-02\n2,2025-01-03\n",
    "unclosed.csv": b'a,b\n1,x\n2,"y\n3,z\n',
    "codes.csv": b"zip,year\n01234,2024\n98765,2025\n",
    "flags.csv": b"ok\nyes\nNo\n\nyes\n",
    "utf16.csv": "a,b\n1,é\n".encode("utf-16"),
    "nul.csv": b"a,b\n1,x\0y\n",
}


def test_odd_files_are_read_and_what_is_odd_is_said(tmp_path, tables):
    for name, content in ODD.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "fake.xlsx").write_bytes(b"no zip")
    (tmp_path / "bad.json").write_bytes(b"{nope")
    (tmp_path / "x.doc").write_bytes(b"?")

    about = {name: tables("describe_table", path=str(tmp_path / name)) for name in ODD}
    types = {name: {c["name"]: c["type"] for c in a["columns"]} for name, a in about.items()}
    first = {name: a["first_rows"] for name, a in about.items()}
    for name in ("bom_crlf.csv", "mixed_ends.csv"):
        assert first[name] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert first["semicolon.csv"] == [{"betrag": 1234.5, "name": "Zürich"}, {"betrag": -12.5, "name": "Köln"}]
    assert about["semicolon.csv"]["format"] == "CSV, semicolon, Windows-1252 (a guess)"
    assert first["tab.tsv"] == [{"a": 1, "b": "x, y"}]
    assert types["chinese.csv"] == {"日期": "DATE", "金额": "DECIMAL(18,2)", "地区": "VARCHAR"}
    assert first["chinese.csv"][0] == {
        "日期": "2025-03-09",
        "金额": 1234.5,
        "地区": "北京",
        "金额_text": "￥1234.50",
    }
    assert "GB18030" in about["chinese.csv"]["format"]
    assert about["chinese.csv"]["columns"][1]["unreadable"] == {"count": 1, "first": [{"row": 3, "value": "“x”"}]}
    page = tables(
        "query_table", path=str(tmp_path / "chinese.csv"), sql="SELECT 地区, sum(金额) AS 合计 FROM data GROUP BY 1"
    )
    assert {r["地区"]: r["合计"] for r in page["rows"]}["杭州"] == 15
    assert page["notes"] == ["data.金额: 1 values could not be read and are NULL"]
    assert first["quoted.csv"][0]["b"] == 'two\nlines, and "quotes"'
    assert first["names.csv"] == [{"a": 1, "column_2": 2, "a_2": 3, "A_3": 4}]
    assert first["ragged.csv"][0] == {"a": 1, "b": None}
    assert "2 rows do not have 2 cells (line 2 has 1; line 3 has 3)" in about["ragged.csv"]["notes"][0]
    assert about["header.csv"]["rows"] == 0
    assert "header only" in about["header.csv"]["notes"][0]
    assert types["headless.csv"] == {"column_1": "BIGINT", "column_2": "DATE"}
    assert about["headless.csv"]["rows"] == 2
    assert about["unclosed.csv"]["rows"] == 1
    assert "stopped at line 3" in about["unclosed.csv"]["notes"][0]
    assert types["codes.csv"] == {"zip": "VARCHAR", "year": "BIGINT"}
    assert first["flags.csv"] == [{"ok": True}, {"ok": False}, {"ok": True}]
    assert first["utf16.csv"] == [{"a": 1, "b": "é"}]
    assert first["nul.csv"] == [{"a": 1, "b": "xy"}]
    for name, words in {
        "empty.csv": "empty",
        "fake.xlsx": "no Excel",
        "bad.json": "cannot be read",
        "x.doc": "kind",
    }.items():
        with pytest.raises(Refused, match=words):
            tables("describe_table", path=str(tmp_path / name))


COLUMNS = {
    "us": (["$1,234.50", "(7.25)", "1,000", "-3", "n/a"], "DECIMAL(18,2)", [1234.5, -7.25, 1000, -3, None]),
    "eu": (["1.234,50", "7,25-", "€ 1.000", "1 000,5", "2,5 €"], "DECIMAL(18,2)", [1234.5, -7.25, 1000, 1000.5, 2.5]),
    "thousands": (["1,000", "2,500", "12", "7", ""], "BIGINT", [1000, 2500, 12, 7, None]),
    "measure": (["1e-3", "2.5", "3", "4", "5"], "DOUBLE", [0.001, 2.5, 3, 4, 5]),
    "fine": (["0.1234", "2.5", "3", "4", "5"], "DECIMAL(18,4)", [0.1234, 2.5, 3, 4, 5]),
    "percent": (["12%", "7.5%", "3%", "4%", "5%"], "DECIMAL(18,2)", [12, 7.5, 3, 4, 5]),
    "day_first": (["25/3/2025", "4/3/2025", "1.2.25", "2025-03-05", "5 Mar 2025"], "DATE",
                  ["2025-03-25", "2025-03-04", "2025-02-01", "2025-03-05", "2025-03-05"]),
    "month_first": (["3/25/2025", "4/3/2025", "March 5, 2025", "Mar 6 2025", "2025/3/7"], "DATE",
                    ["2025-03-25", "2025-04-03", "2025-03-05", "2025-03-06", "2025-03-07"]),
    "unclear": (["3/4/2025", "4/5/2025", "5/6/2025", "1/2/2025", "2/3/2025"], "VARCHAR", ["3/4/2025", "4/5/2025"]),
    "stamp": (["2025-03-09T10:30:00Z", "2025-03-09 23:30:00-02:30", "3/25/2025 1:05 PM", "2025-03-09", ""], "TIMESTAMP",
              ["2025-03-09T10:30:00", "2025-03-10T02:00:00", "2025-03-25T13:05:00", "2025-03-09T00:00:00", None]),
    "day_number": (["20250309", "20250310", "20250311", "20250312", "20250313"], "DATE", ["2025-03-09"]),
    "plain_number": (["20250309", "20250310", "20250311", "20250312", "7"], "BIGINT", [20250309]),
    "words": (["infinity", "epoch", "May", "now", "1"], "VARCHAR", ["infinity"]),
}  # fmt: skip


def test_columns_get_the_type_a_person_would_give(tmp_path, tables):
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(COLUMNS), *zip(*(values for values, _, _ in COLUMNS.values()), strict=True)])

    about = tables("describe_table", path=str(tmp_path / "t.csv"))
    columns = {c["name"]: c for c in about["columns"]}
    for name, (_, kind, wanted) in COLUMNS.items():
        got = [row[name] for row in about["first_rows"]][: len(wanted)]
        assert (name, columns[name]["type"], got) == (name, kind, wanted)
        assert columns[name]["unreadable"] is None
    assert "nothing tells which" in columns["unclear"]["notes"][0]
    assert "day first" in columns["day_first"]["notes"][0]
    page = tables("query_table", path=str(tmp_path / "t.csv"), sql="SELECT 1 AS x FROM data LIMIT 1")
    assert any("unclear is kept as text" in note for note in page["notes"])


def test_parquet_json_and_excel(tmp_path, tables):
    import duckdb
    import openpyxl

    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT '1,000.10' AS amount, DATE '2025-03-09' AS d) TO '{tmp_path}/t.parquet'")
    (tmp_path / "t.json").write_text('[{"amount": 0.1, "d": "3/25/2025", "tags": [1]}, {"amount": 0.2, "d": null}]')
    (tmp_path / "t.jsonl").write_text('{"amount": 0.1}\n{"amount": 0.2}\n')
    book = openpyxl.Workbook()
    book.active.title = "first"
    book.active.append(["x"])
    sheet = book.create_sheet("Umsatz")
    for row in (["amount", "d"], [0.1, date(2025, 3, 9)], [None, None], [0.2, datetime(2025, 3, 10)]):
        sheet.append(row)
    book.save(tmp_path / "t.xlsx")

    for name, total in {"t.parquet": 1000.1, "t.json": 0.3, "t.jsonl": 0.3}.items():
        page = tables("query_table", path=str(tmp_path / name), sql="SELECT sum(amount) AS s FROM data")
        assert page["rows"] == [{"s": total}]
        assert page["columns"] == [{"name": "s", "type": "DECIMAL(38,2)"}]
    about = tables("describe_table", path=str(tmp_path / "t.json"))
    assert about["first_rows"][0] == {"amount": 0.1, "d": "2025-03-25", "tags": [1]}
    about = tables("describe_table", path=str(tmp_path / "t.xlsx"), sheet="Umsatz")
    assert about["first_rows"] == [{"amount": 0.1, "d": "2025-03-09"}, {"amount": 0.2, "d": "2025-03-10"}]
    assert tables("describe_table", path=str(tmp_path / "t.xlsx"))["notes"][0].startswith("Sheets: first, Umsatz")
    with pytest.raises(Refused, match="Sheets: first, Umsatz"):
        tables("describe_table", path=str(tmp_path / "t.xlsx"), sheet="nope")


def test_a_changed_file_is_read_again_and_a_long_query_is_stopped(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("n\n1\n")
    endless = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 3"

    with serving("tables", "--root", tmp_path, "--timeout", "0.7") as call:
        assert call("query_table", path="t.csv", sql="FROM data")["rows"] == [{"n": 1}]
        file.write_text("n\n1\n2\n")
        assert call("query_table", path="t.csv", sql="FROM data")["total_rows"] == 2
        with pytest.raises(Refused, match=r"Stopped after 0\.7 s"):
            call("query_table", path="t.csv", sql=endless)
        assert call("query_table", path="t.csv", sql="FROM data")["total_rows"] == 2


def test_tools_say_what_they_are_and_a_bad_root_is_exit_2(tmp_path, tables):
    tools = tables.tools()
    assert set(tools) == {"describe_table", "query_table"}
    for tool in tools.values():
        hints = tool.annotations
        assert (hints.read_only_hint, hints.idempotent_hint, hints.open_world_hint) == (True, True, False)
        assert tool.title
        assert "Not for" in tool.description
        assert tool.output_schema["properties"]["notes"]
    command = [sys.executable, "-P", REPO / "mcp_servers" / "tables.py", "--root", tmp_path / "none"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"not a folder: {tmp_path / 'none'}" in ended.stderr


def test_without_duckdb_the_error_says_how_to_get_it(tmp_path):
    (tmp_path / "t.csv").write_text("n\n1\n")
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "duckdb.py").write_text("raise ImportError")

    hint = pytest.raises(Refused, match=r'pip install "orchestrator-mcp\[servers\]"')
    with serving("tables", "--root", tmp_path, env={"PYTHONPATH": str(shadow)}) as call, hint:
        call("describe_table", path="t.csv")


def test_the_file_stands_alone():
    imported = set(
        re.findall(r"^(?:from|import) (\w+)", Path(REPO, "mcp_servers", "tables.py").read_text(), re.MULTILINE)
    )
    assert "orchestrator" not in imported
    assert "duckdb" not in imported


def test_stopping_work_ends_its_thread():
    spec = importlib.util.spec_from_file_location("tables_under_test", REPO / "mcp_servers" / "tables.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    work, begun, ended = module.Work(), threading.Event(), []

    def endless():
        try:
            with work.connect(":memory:") as con:
                begun.set()
                con.execute(
                    "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 3"
                )
        except module.ToolError as error:
            ended.append(str(error))

    thread = threading.Thread(target=endless, daemon=True)
    thread.start()
    assert begun.wait(20)
    for _ in range(200):  # an interrupt before the query has begun is lost
        work.stop()
        thread.join(0.05)
        if ended:
            break
    assert ended == ["Stopped."]
