"""Whatever a file holds, nothing but a `ConfigurationError` comes out."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.config import load_settings, read_mcp_config
from orchestrator.config.entries import KEYS
from orchestrator.errors import ConfigurationError, Problem

fast = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(KEYS)


def problems(call: Callable[[], object]) -> Sequence[Problem]:
    try:
        call()
    except ConfigurationError as error:
        return error.problems
    return ()


@fast
@given(st.binary(max_size=200))
def test_bytes(tmp_path: Path, data: bytes) -> None:
    toml, servers = tmp_path / "orchestrator.toml", tmp_path / "mcp.json"
    for path in (toml, servers):
        path.write_bytes(data)
    for named in ([], [servers]):
        found = problems(lambda named=named: load_settings(toml, named, tmp_path, {}, bundled=tmp_path))
        assert all(problem.file in (toml, servers) for problem in found)


@fast
@given(st.dictionaries(st.text(max_size=5), json_values | st.dictionaries(keys, json_values, max_size=6), max_size=3))
def test_entries(tmp_path: Path, servers: object) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))

    def read() -> None:
        for server in read_mcp_config(path).servers.values():
            server.expand({}, tmp_path)

    assert all(problem.file for problem in problems(read))


@fast
@given(st.text(alphabet="[]=.\"' \nabservlimtp#{},1", max_size=80))
def test_toml(tmp_path: Path, text: str) -> None:
    (tmp_path / "orchestrator.toml").write_text(text)
    found = problems(lambda: load_settings(None, [], tmp_path, {}, bundled=tmp_path))
    assert all(problem.line for problem in found)
