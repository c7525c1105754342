"""The documentation's code blocks do what the page says; see `blocks.py` for how they are marked."""

from pathlib import Path

import pytest

from tests.house.blocks import ROOT, Sitting, blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_code_blocks(page: Path, tmp_path: Path) -> None:
    sitting = Sitting(tmp_path)
    for block in blocks(page):
        sitting.play(block)
