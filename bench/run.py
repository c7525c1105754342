"""Measures every system on the same work, side by side. See README.md.

    run.py setup   [--systems a,b]                     make one virtual environment a system
    run.py measure [--systems a,b] [--scenarios x,y] [--repeats 3] [--out results.json]
    run.py table   results.json                        medians, and the ratio to the floor
    run.py imports [--repeats 5]                       import times that bound a cold start
"""

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONFIG = tomllib.loads((HERE / "systems.toml").read_text())
FRESH = ("cold", "many", "again")  # measured from the start of a new process
LIVE = ("throughput", "steps", "parallel", "fanout", "history", "history-8k", "soak")  # asked of one process that stays up
SEPARATE = ("traced",)  # a process of its own that stays up
QUIET = {
    "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # else every start compiles all that it imports
}
MODULES = ["pydantic", "httpx", "httpx2", "mcp", "opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter",
           "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "openai", "anthropic"]


class Lab:
    def __init__(self, cache):
        self.cache = Path(cache).resolve()
        self.port = None

    def environment(self, name):
        spec = CONFIG["systems"].get(name, {}) if name != "tools" else {}
        return self.cache / spec.get("environment", name)

    def python(self, name):
        return str(self.environment(name) / "bin" / "python")

    def requirements(self, name):
        table = CONFIG if name in ("tools", "probes") else CONFIG["systems"]
        return table[name].get("requires", [])

    def setup(self, names):
        installer = self.cache / "installer"
        if not (installer / "bin" / "uv").exists():
            subprocess.run([sys.executable, "-m", "venv", installer], check=True)
            subprocess.run([installer / "bin" / "pip", "install", "-q", "uv"], check=True)
        uv = installer / "bin" / "uv"
        for name in ["tools", "probes", *names]:
            if not self.requirements(name):
                continue
            folder = self.environment(name)
            if not folder.exists():
                subprocess.run([uv, "venv", "-q", "-p", sys.executable, folder], check=True)
            done = subprocess.run([uv, "pip", "install", "-q", "--compile-bytecode", "-p", self.python(name), *self.requirements(name)],
                                  cwd=HERE.parent)
            print(f"{name}: {'ready' if done.returncode == 0 else 'FAILED'}")

    def versions(self, name):
        script = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        return json.loads(subprocess.check_output([self.python(name), "-c", script]))

    def ask_model(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
            return json.loads(response.read() or b"null")

    def start_model(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        process = subprocess.Popen([self.python("tools"), HERE / "mock_model.py", "--port", str(self.port)])
        for _ in range(100):
            try:
                self.ask_model("/stats")
                return process
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the mock model did not start")


class Peer:
    """A driver process of one system."""

    def __init__(self, lab, name):
        self.lab, self.name, self.process = lab, name, None

    async def start(self, *scenarios, **env):
        module = CONFIG["systems"][self.name].get("adapter", self.name)
        command = [self.lab.python(self.name), HERE / "driver.py", module, f"http://127.0.0.1:{self.lab.port}/v1", self.lab.python("tools")]
        log = open(self.lab.cache / f"{self.name}.log", "ab")
        self.process = await asyncio.create_subprocess_exec(
            *map(str, command), *scenarios, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
            env=os.environ | QUIET | env, cwd=self.lab.cache, limit=2**24)

    async def until(self, word, limit=900):
        async def read():
            while line := await self.process.stdout.readline():
                if line.startswith(word.encode()):
                    return line.decode()[len(word):].strip()
            raise RuntimeError(f"{self.name} ended before it said {word}")

        return await asyncio.wait_for(read(), limit)

    async def fresh(self, scenario):
        if scenario != "again":
            return await self.one(scenario)
        with tempfile.TemporaryDirectory() as home:  # what a system remembers between two starts
            await self.one(scenario, BENCH_HOME=home)
            return await self.one(scenario, BENCH_HOME=home)

    async def one(self, scenario, **env):
        began = time.perf_counter()
        await self.start(scenario, **env)
        await self.until("ANSWER")
        answered = time.perf_counter() - began
        result = json.loads(await self.until("RESULT"))
        await self.process.wait()
        return result | {"wall": answered, "exit": time.perf_counter() - began}

    async def live(self, scenario):
        if self.process is None:
            await self.start()
            await self.until("READY")
        self.process.stdin.write(scenario.encode() + b"\n")
        await self.process.stdin.drain()
        return json.loads(await self.until("RESULT"))

    async def stop(self):
        if self.process and self.process.returncode is None:
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 20)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        self.process = None


def growth(arrivals):
    """Seconds a step near the start of a long run and at its end, from when its requests arrived."""
    gaps = [b - a for a, b in zip(arrivals, arrivals[1:])]
    first, middle, last = (statistics.median(part) for part in (gaps[4:24], gaps[39:60], gaps[-20:]))
    return {"first": first, "middle": middle, "last": last}


async def measure(lab, systems, scenarios, repeats, out):
    model = lab.start_model()
    live, separate = {n: Peer(lab, n) for n in systems}, {n: Peer(lab, n) for n in systems}
    records = json.loads(Path(out).read_text())["records"] if Path(out).exists() else []
    try:
        for repeat in range(repeats):
            for scenario in scenarios:
                for name in systems[repeat % len(systems):] + systems[:repeat % len(systems)]:
                    ours = name.startswith("orchestrator")
                    if (scenario == "soak" and (repeat or not ours)) or (scenario == "history-8k" and not ours):
                        continue  # long, or a question to this project alone
                    group = live if scenario in LIVE else separate
                    peer = Peer(lab, name) if scenario in FRESH else group[name]
                    lab.ask_model("/reset")
                    try:
                        result = await (peer.fresh if scenario in FRESH else peer.live)(scenario)
                        stats = lab.ask_model("/stats")
                        arrivals = stats.pop("arrivals")
                        result["model"] = stats
                        if scenario.startswith("history"):
                            result |= growth(arrivals)
                        shown = f"{result['wall']:.3f} s"
                    except (RuntimeError, TimeoutError) as error:
                        result, shown = {"error": str(error) or type(error).__name__}, f"FAILED {error}"
                        await peer.stop()
                    records.append({"system": name, "scenario": scenario, "repeat": repeat} | result)
                    print(f"{repeat} {scenario:10} {name:16} {shown}", flush=True)
                versions = {n: lab.versions(n) for n in dict.fromkeys([*systems, *(r["system"] for r in records), "tools"])}
                Path(out).write_text(json.dumps({"python": sys.version, "versions": versions, "records": records}, indent=1))
    finally:
        for peer in [*live.values(), *separate.values()]:
            await peer.stop()
        model.terminate()
        model.wait()


def figures(record):
    """What one record says, by the name of the figure: seconds unless the name says otherwise."""
    scenario, units = record["scenario"], record.get("units") or 1
    if scenario in FRESH:
        return {"answer_s": record["wall"], "import_s": record["import"], "open_s": record["open"], "rss_mb": record["rss_mb"]}
    wall, cpu = record["wall"] / units, record["cpu"] / units
    if scenario in ("steps", "traced"):
        spans = {"spans_per_step": record["spans_per_run"] / units} if "spans_per_run" in record else {}
        return {"wall_ms_per_step": 1e3 * wall, "cpu_ms_per_step": 1e3 * cpu} | spans
    if scenario == "throughput":
        return {"runs_per_s": 1 / wall, "cpu_ms_per_run": 1e3 * cpu, "rss_mb": record["rss_mb"],
                "peak_in_flight": record["model"]["peak_in_flight"]}
    if scenario == "soak":
        return {"rss_first_mb": record["rss_first_mb"], "rss_last_mb": record["rss_last_mb"], "cpu_ms_per_run": 1e3 * cpu}
    if scenario.startswith("history"):
        return {"first_ms": 1e3 * record["first"], "middle_ms": 1e3 * record.get("middle", float("nan")), "last_ms": 1e3 * record["last"], "cpu_ms_per_step": 1e3 * cpu,
                "prompt_mb": record["model"]["bytes_in"] / 1e6}
    return {"wall_ms": 1e3 * wall, "cpu_ms": 1e3 * cpu}


def table(path):
    data = json.loads(Path(path).read_text())
    groups = {}
    for record in data["records"]:
        if "error" not in record:
            for figure, value in figures(record).items():
                groups.setdefault(record["scenario"], {}).setdefault(record["system"], {}).setdefault(figure, []).append(value)
    for scenario, systems in groups.items():
        names = list(next(iter(systems.values())))
        print(f"\n### {scenario}\n\n| system | n | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
        floor = {f: statistics.median(v) for f, v in systems.get("floor", {}).items()}
        for system, values in systems.items():
            cells = []
            for figure in names:
                middle = statistics.median(values[figure]) if figure in values else float("nan")
                ratio = f" ({middle / floor[figure]:.2f}x)" if floor.get(figure) and system != "floor" else ""
                cells.append(f"{middle:.4g}{ratio}")
            print(f"| {system} | {len(values[names[0]])} | " + " | ".join(cells) + " |")


def import_seconds(python, module):
    done = subprocess.run([python, "-X", "importtime", "-c", f"import {module}"], capture_output=True, text=True)
    if done.returncode:
        return None
    top = [line for line in done.stderr.splitlines() if re.search(r"\|\s\S", line) and "cumulative" not in line]
    began = next((i for i, line in enumerate(top) if line.endswith("| site")), -1)
    return sum(int(line.split("|")[1]) for line in top[began + 1:]) / 1e6


def imports(lab, repeats):
    """Each module in an interpreter of its own; `python` is an interpreter that imports nothing."""
    python, times = lab.python("probes"), {}
    for _ in range(repeats):
        for module in MODULES:
            times.setdefault(module, []).append(import_seconds(python, module))
        began = time.perf_counter()
        subprocess.run([python, "-c", "pass"])
        times.setdefault("python (start and exit, wall)", []).append(time.perf_counter() - began)
    print("| module | ms (median) | min |\n|---|---|---|")
    for module, values in times.items():
        good = [v for v in values if v is not None]
        print(f"| {module} | {1e3 * statistics.median(good):.0f} | {1e3 * min(good):.0f} |" if good else f"| {module} | not importable | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["setup", "measure", "table", "imports"])
    parser.add_argument("path", nargs="?", default="results.json")
    parser.add_argument("--cache", default=os.environ.get("BENCH_CACHE"), help="folder for the environments (or BENCH_CACHE)")
    parser.add_argument("--systems", default=",".join(CONFIG["systems"]))
    parser.add_argument("--scenarios", default=",".join((*LIVE, *SEPARATE, *FRESH)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="results.json")
    options = parser.parse_args()
    if options.action == "table":
        return table(options.path)
    if not options.cache:
        parser.error("name a cache folder with --cache or BENCH_CACHE")
    lab, systems = Lab(options.cache), options.systems.split(",")
    if options.action == "setup":
        lab.setup(systems)
    elif options.action == "imports":
        imports(lab, options.repeats)
    else:
        asyncio.run(measure(lab, systems, options.scenarios.split(","), options.repeats, options.out))


if __name__ == "__main__":
    main()
