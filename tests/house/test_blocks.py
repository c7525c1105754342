"""The mechanism that runs the documentation: what it takes for right, and what not."""

from pathlib import Path

import pytest

from tests.house.blocks import Sitting, Wrong, blocks, matches


def play(folder: Path, text: str) -> None:
    document = folder / "page.md"
    document.write_text(text, encoding="utf-8")
    (folder / "sitting").mkdir()
    sitting = Sitting(folder / "sitting")
    for block in blocks(document):
        sitting.play(block)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a", "a\nb\n", False),
        ("took … s", "took 1.25 s", True),
        ("took … s", "took 1\n2 s", False),
        ("a\n…\nz", "a\nb\nc\nz\n", True),
        ("a\n…\nz", "a\nz\n", True),
        ("a\n…", "a\nb\n", True),
        ("…", "", True),
        ("", "", True),
        ("", "a", False),
        ("3 * (x)", "3 * (x)   \n", True),
    ],
)
def test_what_counts_as_the_same(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same


GOOD = """\
<!-- file: conf/a.json -->
```json
{"greeting": "hello"}
```
```console
$ cd conf && echo one
one
$ cat \\
>   a.json; ls ../examples/sales.csv
{"greeting": "hello"}
../examples/sales.csv
```

<!-- exit: 3 -->
```console
$ (echo oops >&2; exit 3)
oops
```
```python
print("from", "python")
```
<!-- output -->
```text
from …
```
<!-- not run: it would take a day -->
```bash
sleep 86400
```
  - in a list:
    ```bash
    test -f conf/a.json
    ```
<!-- file: conf/tool.py -->
```python
raise SystemExit("written, not run")
```
```bash
grep -q "not run" conf/tool.py
```
```text
a drawing
```
"""


def test_a_document_that_is_right(tmp_path: Path) -> None:
    play(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```\nwhat is this\n```", r"page\.md:1: a nameless block is neither run nor left out with a reason"),
        ("hi\n\n```rust\nfn\n```", r"page\.md:3: a rust block is neither run"),
        ("```console\n$ echo a\nb\n```", r"page\.md:1: the document says\nb\n--- and it printed\na"),
        ("```console\n$ echo a\na\n$ false\n$ true\n```", r"`false` ended with 1"),
        ("```bash\nfalse\ntrue\n```", "ended with 1"),
        ("```python\nraise SystemExit(2)\n```", "ended with 2"),
        ("```json\n{]\n```", "not JSON"),
        ("<!-- output -->\n```text\na\n```", "no bash or python block stands above"),
        ("<!-- not run -->\n```bash\ntrue\n```", "say why"),
        ("```console\necho a\n```", "begins with a"),
    ],
)
def test_a_document_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Wrong, match=message):
        play(tmp_path, text)


def test_a_note_belongs_to_the_block_right_below_it(tmp_path: Path) -> None:
    with pytest.raises(Wrong, match="ended with 1"):
        play(tmp_path, "<!-- not run: far away -->\n\nWords between.\n\n```bash\nfalse\n```")
