"""The documentation as text: its links lead somewhere, and the architecture page names every module."""

import re
from pathlib import Path

import pytest

from tests.house.blocks import ROOT

PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "bench").glob("*.md")})

_FENCED = re.compile(r"^ *(`{3,}|~{3,})[^\n]*\n.*?^ *\1 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"(?<!\\)\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
_OWNS = re.compile(r"^\| `([\w/]+\.py)` \| [^|]+ \|$", re.MULTILINE)


def links(text: str) -> list[str]:
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))


def anchors(text: str) -> set[str]:
    """The names that hosts of Markdown give to headings."""
    headings = (re.sub(r"[`*]", "", heading) for heading in _HEADING.findall(_FENCED.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """Links within the repository that lead nowhere; those to other places are not followed."""
    found: list[str] = []
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        missing = not target.exists()
        if not missing and anchor and target.suffix == ".md":
            missing = anchor not in anchors(target.read_text(encoding="utf-8"))
        if missing:
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`, three\n[a](#one-two-three) [b](#four) [c](no.md) [d](page.md) [e](https://x.example)\n"
    )
    assert broken(page) == ["#four", "no.md"]


def test_the_architecture_page_names_every_module_and_no_other() -> None:
    package = ROOT / "orchestrator"
    modules = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.name != "__init__.py" and "_bundled" not in path.parts
    }
    said = set(_OWNS.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    assert modules - said == set(), "modules that docs/architecture.md does not name"
    assert said - modules == set(), "modules that docs/architecture.md names and that are not there"
