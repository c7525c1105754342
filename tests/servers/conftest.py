"""The servers of this folder's tests."""

import sys
from pathlib import Path

import pytest

# The helpers are imported by name, from whichever folder pytest was started in.
sys.path.insert(0, str(Path(__file__).parent))

from stdio import REPO, serving


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A `tables` server that may read this repository and every `tmp_path`."""
    with serving("tables", "--root", REPO, "--root", tmp_path_factory.getbasetemp()) as server:
        yield server


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    """Where the `charts` server of the session writes."""
    return tmp_path_factory.mktemp("workspace").resolve()


@pytest.fixture(scope="session")
def charts(workspace):
    """A `charts` server over `workspace` that may read this repository."""
    with serving("charts", "--workspace", workspace, "--root", REPO) as server:
        yield server
