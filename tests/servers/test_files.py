"""The `files` server: what it reads and changes, and that nothing leaves its roots."""

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from stdio import REPO, Refused, Server, serving

POINTS_OUT = (
    "../secret.txt",
    "a/../../secret.txt",
    "/etc/passwd",
    "out/secret.txt",
    "out",
    "deep/up/secret.txt",
    "link",
)


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A root with a secret beside it, and links that lead to it."""
    root = tmp_path / "box"
    (root / "deep").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "out").symlink_to(tmp_path)
    (root / "deep" / "up").symlink_to("../..")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "inner").symlink_to("a.txt")
    return root


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over the folder of all tests, so that one process serves them."""
    with serving("files", "--root", tmp_path_factory.getbasetemp()) as server:
        yield server


@pytest.fixture
def files(box: Path) -> Iterator[Server]:
    with serving("files", "--root", box) as server:
        yield server


def inside(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file() and not p.is_symlink()}


def test_no_path_leaves_the_root(box: Path, files: Server) -> None:
    before = inside(box)
    for path in POINTS_OUT:
        for tool, more in (
            ("read", {}),
            ("write", {"text": "x"}),
            ("edit", {"old_text": "secret", "new_text": "x"}),
            ("search", {"pattern": "secret"}),
        ):
            with pytest.raises(Refused):
                files(tool, path=path, **more)
        with pytest.raises(Refused):
            files("move", source=path, target="mine.txt") if path not in ("out", "link") else files("read", path=path)
        with pytest.raises(Refused):
            files("move", source="a.txt", target=f"{path}/x" if path in ("out", "link") else path)
    for path in ("..", "out", "deep/up", "/", "\0"):
        with pytest.raises(Refused):
            files("list", path=path)
    for path in (".", "../box", str(box)):
        with pytest.raises(Refused, match="root folder itself"):
            files("delete", path=path, recursive=True)
    assert (box.parent / "secret.txt").read_text() == "secret"
    assert inside(box) == before
    # Nor does a walk follow a link.
    assert files("search", pattern="secret")["matches"] == []
    assert {e["path"]: e["kind"] for e in files("list", pattern="**")["entries"]} == {
        "a.txt": "file", "deep/": "folder", "deep/up": "link", "inner": "link", "link": "link", "out": "link",
    }  # fmt: skip
    with pytest.raises(Refused, match=r"symbolic link \(to a\.txt\); links are not followed"):
        files("read", path="inner")
    assert files("read", path=str(box / "deep" / ".." / "a.txt"))["text"] == "one\ntwo\nthree"
    files("delete", path="out")
    assert (box.parent / "secret.txt").exists()


def test_a_race_does_not_help(box: Path, files: Server) -> None:
    """A folder that turns into a link and back, as fast as it goes, while the server reads and writes below it."""
    (box / "d").mkdir()
    (box / "d" / "secret.txt").write_text("harmless")
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            with suppress(OSError):
                (box / "d").rename(box / "e")
                (box / "d").symlink_to("..")
                (box / "d").unlink()
            shutil.rmtree(box / "d", ignore_errors=True)  # a write makes the folders that are missing
            with suppress(OSError):
                (box / "e").rename(box / "d")

    racer = threading.Thread(target=swap)
    racer.start()
    seen = []
    try:
        for _ in range(60):
            with suppress(Refused):
                seen.append(files("read", path="d/secret.txt")["text"])
            with suppress(Refused):
                files("edit", path="d/secret.txt", old_text="secret", new_text="taken")
            with suppress(Refused):
                files("write", path="d/new.txt", text="x")
    finally:
        ended.set()
        racer.join()
    assert set(seen) <= {"harmless"}
    assert (box.parent / "secret.txt").read_text() == "secret"
    assert not (box.parent / "new.txt").exists()


def test_reading_by_lines_with_the_encoding_said(tmp_path: Path, everywhere: Server) -> None:
    def read(data: bytes, **more: int) -> dict:
        (tmp_path / "f").write_bytes(data)
        return everywhere("read", path=str(tmp_path / "f"), **more)

    text = "第一行\n第二行,价格\n第三行\n"
    for encoding, said in (
        ("utf-8", "UTF-8"),
        ("utf-8-sig", "UTF-8 with BOM"),
        ("gb18030", "GB18030"),
        ("utf-16", "UTF-16-LE with BOM"),
    ):
        part = read(text.encode(encoding), start_line=2, limit=1)
        assert (part["text"], part["encoding"], part["total_lines"], part["next_line"]) == ("第二行,价格", said, 3, 3)
    assert read("Zürich\n".encode("cp1252"))["encoding"] == "Windows-1252 (a guess)"
    assert read(b"\xfe\xff" + "ä\nö".encode("utf-16-be"))["text"] == "ä\nö"
    part = read(b"a\r\nb\r\n")
    assert (part["text"], part["notes"]) == ("a\nb", ["lines end with CR LF"])
    assert read(b"1\n2\n3\n4", start_line=-2)["text"] == "3\n4"
    assert read(b"1\n2\n3\n4", start_line=-9)["first_line"] == 1
    empty = read(b"")
    assert (empty["text"], empty["total_lines"], empty["next_line"]) == ("", 0, None)
    long = read(b"x" * 300_000 + b"\nend\n")
    assert long["text"].endswith("… (line cut)\nend")
    assert len(long["text"]) < 5000
    assert read(b"1\nx" + b"y" * 3_000_000, start_line=2)["text"].startswith("xyy")
    with pytest.raises(Refused, match="has 2 lines, so none at 3"):
        read(b"1\n2\n", start_line=3)
    with pytest.raises(Refused, match=r"binary \(6 bytes, begins with 89 50 4e 47"):
        read(b"\x89PNG\0\0")
    pages, start = "", 1
    whole = "".join(f"line {n} {'x' * 100}\n" for n in range(1500))
    while start:
        part = read(whole.encode(), start_line=start)
        assert len(part["text"]) <= 32_000
        pages, start = pages + part["text"] + "\n", part["next_line"]
    assert pages == whole


def test_a_file_of_a_gigabyte_is_read_by_range(tmp_path: Path) -> None:
    """A sparse file: a real gigabyte to read, none to store. The server's own peak of memory is the measure."""
    big = tmp_path / "big.log"
    with big.open("wb") as file:
        file.write(b"first\n" * 350_000)
        file.seek(1 << 30)
        file.write(b"\nlast but one\nlast\n")
    with serving("files", "--root", tmp_path) as files:
        assert files("read", path="big.log", start_line=999, limit=2)["text"] == "first\nfirst"
        last = files("read", path="big.log", start_line=-2)
        assert (last["text"], last["total_lines"]) == ("last but one\nlast", 350_003)
        (server,) = [
            int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == os.getpid() and _is(pid, big)
        ]
        peak = next(line for line in Path(f"/proc/{server}/status").read_text().splitlines() if "VmHWM" in line)
        assert int(peak.split()[1]) < 200_000


def _parent(pid: str) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _is(pid: str, file: Path) -> bool:
    with suppress(OSError):
        return str(file.parent).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_searching(tmp_path: Path, everywhere: Server) -> None:
    root = str(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "a.py").write_text("import os\n\ndef pool():\n    size = 8\n    return size\n")
    (tmp_path / "src" / "b.log").write_text("pool size 20\npool size 4\n" + "noise\n" * 50)
    (tmp_path / "src" / "c.log").write_bytes("连接池 pool size 太小\n".encode("gb18030"))
    (tmp_path / "x.bin").write_bytes(b"pool size\0")
    (tmp_path / ".hidden").write_text("pool size")

    def found(pattern: str, **more: object) -> list[tuple[str, int]]:
        more.setdefault("path", root)
        result = everywhere("search", pattern=pattern, **more)
        return [(os.path.relpath(m["path"], Path(root).name), m["line"]) for m in result["matches"]]

    def where(pattern: str, **more: object) -> list[str]:
        result = everywhere("search", pattern=pattern, **{"path": root, **more})
        return [f"{Path(m['path']).name}:{m['line']}" for m in result["matches"]]

    assert where(r"pool\s+size") == ["b.log:1", "b.log:2", "c.log:1"]
    assert where("POOL SIZE", ignore_case=True, glob="**/b.*") == ["b.log:1", "b.log:2"]
    assert where("pool()", regex=False, glob="*.{py,c}") == ["a.py:3"]
    assert where("连接池") == ["c.log:1"]
    assert where("pool size", hidden=True, glob=".*") == [".hidden:1"]
    assert where("size", path=f"{root}/a.py") == ["a.py:4", "a.py:5"]
    result = everywhere("search", pattern="size = 8", path=root, context=1)
    (match,) = result["matches"]
    assert (match["before"], match["after"]) == (["def pool():"], ["    return size"])
    assert result["notes"] == ["1 binary files were left out"]
    seen, offset = [], 0
    while offset is not None:
        page = everywhere("search", pattern="noise", path=root, limit=20, offset=offset)
        seen += [m["line"] for m in page["matches"]]
        offset = page["next_offset"]
    assert seen == list(range(3, 53))
    with pytest.raises(Refused, match="no regular expression"):
        where("pool(")
    with pytest.raises(Refused, match="can take forever"):
        where("(a+)+b")
    assert where(r"(?:po|ol)++ size") == ["b.log:1", "b.log:2", "c.log:1"]
    assert {Path(p).name for p, _ in found("pool")} == {"a.py", "b.log", "c.log"}


def test_listing(tmp_path: Path, everywhere: Server) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", ".git/e.py", "[x].py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    shown = everywhere("list", path=str(tmp_path))["path"]

    def names(pattern: str | None = None, **more: object) -> list[str]:
        result = everywhere("list", path=str(tmp_path), pattern=pattern, **more)
        return [os.path.relpath(e["path"], shown) + "/" * e["path"].endswith("/") for e in result["entries"]]

    assert names() == ["[x].py", "a.py", "src/"]
    assert names("*.py") == ["[x].py", "a.py", "src/b.py", "src/deep/c.py"]
    assert names("src/**/*.py") == ["src/b.py", "src/deep/c.py"]
    assert names("src/*.py") == ["src/b.py"]
    assert names("{a,c}.py") == ["a.py", "src/deep/c.py"]
    assert names("[[]x].py") == ["[x].py"]
    assert names("*.py", hidden=True, limit=2) == [".git/e.py", "[x].py"]
    page = everywhere("list", path=str(tmp_path), limit=2)
    assert (page["total"], page["next_offset"]) == (3, 2)
    with pytest.raises(Refused, match=r"There is: src"):
        everywhere("list", path=str(tmp_path / "scr"))
    with pytest.raises(Refused, match="is no folder"):
        everywhere("list", path=str(tmp_path / "a.py"))


def test_writing_is_whole_and_keeps_the_mode(tmp_path: Path, everywhere: Server) -> None:
    target = tmp_path / "new" / "deep" / "报告.md"
    made = everywhere("write", path=str(target), text="# 报告\n")
    assert (made["did"], made["bytes"]) == ("made a new file", len("# 报告\n".encode()))
    assert target.read_text("utf-8") == "# 报告\n"
    target.chmod(0o751)
    with target.open() as old:
        everywhere("write", path=str(target), text="second")
        assert old.read() == "# 报告\n", "who reads the old file goes on reading it"
    assert target.read_text() == "second"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751
    with pytest.raises(Refused, match="there already"):
        everywhere("write", path=str(target), text="x", overwrite=False)
    everywhere("write", path=str(tmp_path / "g.txt"), text="中", encoding="gb18030", overwrite=False)
    assert (tmp_path / "g.txt").read_bytes() == "中".encode("gb18030")
    for bad, words in (({"encoding": "latin-1"}, "cannot hold '中'"), ({"encoding": "utf-99"}, "No encoding")):
        with pytest.raises(Refused, match=words):
            everywhere("write", path=str(tmp_path / "g.txt"), text="中", **bad)
    with pytest.raises(Refused, match="is a folder"):
        everywhere("write", path=str(tmp_path / "new"), text="x")
    assert sorted(p.name for p in target.parent.iterdir()) == ["报告.md"], "no temporary file is left"


def test_editing_exact_text(tmp_path: Path, everywhere: Server) -> None:
    file = tmp_path / "f.txt"

    def edit(old: str, new: str, **more: bool) -> dict:
        return everywhere("edit", path=str(file), old_text=old, new_text=new, **more)

    file.write_bytes("eins\r\nzwei\r\nzwei\r\nvier\r\n".encode("utf-16"))
    file.chmod(0o640)
    done = edit("eins\nzwei", "one\ntwo")
    assert (done["line"], done["did"]) == (1, "replaced 1 place")
    assert "CR LF" in done["notes"][0]
    assert file.read_bytes() == "one\r\ntwo\r\nzwei\r\nvier\r\n".encode("utf-16")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.write_text("a = 1\nb = 1\nc = 1\n")
    with pytest.raises(Refused, match=r"is 3 times .*lines 1, 2, 3.*all=true"):
        edit("= 1", "= 2")
    assert edit("= 1", "= 2", all=True)["did"] == "replaced 3 places"
    assert file.read_text() == "a = 2\nb = 2\nc = 2\n"
    with pytest.raises(Refused, match=r"not in .*Line 2 looks like it: 'b = 2'"):
        edit("b  = 2", "b = 3")
    for old, new, words in (("", "x", "is empty"), ("a", "a", "nothing would change")):
        with pytest.raises(Refused, match=words):
            edit(old, new)
    file.write_bytes("ä = 1".encode("cp1252"))
    with pytest.raises(Refused, match="cannot hold"):
        edit("= 1", "= 中")
    file.write_bytes(b"\0\1\2")
    with pytest.raises(Refused, match="binary"):
        edit("a", "b")


def test_moving_and_deleting(tmp_path: Path, everywhere: Server) -> None:
    def at(name: str) -> str:
        return str(tmp_path / name)

    (tmp_path / "a").write_text("A")
    (tmp_path / "b").write_text("B")
    with pytest.raises(Refused, match="there already"):
        everywhere("move", source=at("a"), target=at("b"))
    everywhere("move", source=at("a"), target=at("b"), overwrite=True)
    assert (tmp_path / "b").read_text() == "A"
    everywhere("move", source=at("b"), target=at("new/c"))
    assert not (tmp_path / "b").exists()
    everywhere("move", source=at("new"), target=at("old"))
    assert (tmp_path / "old" / "c").read_text() == "A"
    with pytest.raises(Refused):
        everywhere("move", source=at("old"), target=at("old/inside"))
    with pytest.raises(Refused, match=r"not empty\. Set recursive=true"):
        everywhere("delete", path=at("old"))
    everywhere("delete", path=at("old/c"))
    everywhere("delete", path=at("old"))
    (tmp_path / "t" / "u").mkdir(parents=True)
    (tmp_path / "t" / "u" / "v").write_text("x")
    everywhere("delete", path=at("t"), recursive=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == []
    with pytest.raises(Refused, match="No 'gone'"):
        everywhere("delete", path=at("gone"))


def test_pipes_and_sockets_do_not_hang_it(tmp_path: Path, everywhere: Server) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="no regular file"):
        everywhere("read", path=str(tmp_path / "pipe"))
    with pytest.raises(Refused):
        everywhere("write", path=str(tmp_path / "pipe"), text="x")
    assert everywhere("search", pattern="x", path=str(tmp_path))["matches"] == []


def test_tools_say_what_they_are_and_a_bad_root_is_exit_2(tmp_path: Path, everywhere: Server) -> None:
    tools = everywhere.tools()
    assert set(tools) == {"list", "read", "search", "write", "edit", "move", "delete"}
    for name, tool in tools.items():
        reads = name in ("list", "read", "search")
        assert tool.annotations.read_only_hint is reads
        assert tool.annotations.destructive_hint is not reads
        assert tool.output_schema is not None
    command = [sys.executable, "-P", REPO / "mcp_servers" / "files.py", "--root", tmp_path / "none"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "not a folder" in ended.stderr
