"""The package as users get it: from a wheel, and from a checkout. Both carry the bundled cards and servers."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CARDS = sorted(path.name for path in (ROOT / "agents").glob("*.md"))
SERVERS = sorted(path.name for path in (ROOT / "mcp_servers").glob("*.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty venv with the wheel in it; dependencies are read from the venv of the tests, so nothing is fetched."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    scripts = folder / "bin"
    pip = [str(scripts / "python"), "-m", "pip", "--isolated", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts


def answer(command: list[str | Path], folder: Path) -> Any:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_the_wheel_holds(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for kind, files in (("agents", CARDS), ("mcp_servers", SERVERS)):
        assert sorted(Path(name).name for name in names if f"_bundled/{kind}/" in name) == files
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"orchestrator"}
    assert "orchestrator/py.typed" in names


def test_an_installed_wheel_finds_the_bundled_agents(installed: Path, tmp_path: Path) -> None:
    place = [installed / "python", "-c", "import json, orchestrator; print(json.dumps(orchestrator.__file__))"]
    package = Path(answer(place, tmp_path)).parent
    assert package.is_relative_to(installed.parent)
    agents = answer([installed / "orchestrator", "agents", "--json"], tmp_path)["agents"]
    assert [Path(agent["file"]) for agent in agents] == [package / "_bundled" / "agents" / name for name in CARDS]


def test_an_installed_wheel_starts_the_bundled_servers(installed: Path, tmp_path: Path) -> None:
    servers = answer([installed / "orchestrator", "tools", "--json"], tmp_path)["servers"]
    assert [(f"{each['name']}.py", each["up"], each["problem"]) for each in servers] == [
        (name, True, "") for name in SERVERS
    ]


def test_a_checkout_finds_the_bundled_agents(tmp_path: Path) -> None:
    agents = answer([sys.executable, "-m", "orchestrator", "agents", "--json"], tmp_path)["agents"]
    assert [Path(agent["file"]) for agent in agents] == [ROOT / "agents" / name for name in CARDS]
