"""Whatever a file holds, nothing but a `ConfigurationError` comes out."""

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.config import load_settings, read_mcp_config
from orchestrator.errors import ConfigurationError

fast = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    "command args env headers url type transport timeout disabled enabled tools autoApprove envFile cwd env_vars "
    "orchestrator bearer_token_env_var env_http_headers httpUrl disabledTools".split()
)


@fast
@given(st.binary(max_size=200))
def test_bytes(tmp_path: Path, data: bytes) -> None:
    for name in ("mcp.json", "orchestrator.toml"):
        (tmp_path / name).write_bytes(data)
    for config, servers in ((None, []), (tmp_path / "orchestrator.toml", [tmp_path / "mcp.json"])):
        try:
            load_settings(config, servers, tmp_path, {}, bundled=tmp_path)
        except ConfigurationError as error:
            assert error.problems


@fast
@given(st.dictionaries(st.text(max_size=5), json_values | st.dictionaries(keys, json_values, max_size=6), max_size=3))
def test_entries(tmp_path: Path, servers: object) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    try:
        found = read_mcp_config(path)
    except ConfigurationError as error:
        assert error.problems
        return
    for server in found.servers.values():
        try:
            server.expand({}, tmp_path)
        except ConfigurationError as error:
            assert error.problems


@fast
@given(st.text(alphabet="[]=.\"' \nabservlimtp#{},1", max_size=80))
def test_toml(tmp_path: Path, text: str) -> None:
    (tmp_path / "orchestrator.toml").write_text(text)
    try:
        load_settings(None, [], tmp_path, {}, bundled=tmp_path)
    except ConfigurationError as error:
        assert error.problems
