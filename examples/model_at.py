"""`make demo MODEL=URL`: an orchestrator.toml for the model of a server, with how it acts best, as was tried out.

    python examples/model_at.py URL FILE

`URL` is where an OpenAI-compatible API begins (`http://127.0.0.1:8080/v1`); its first model becomes `[models.demo]`.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path


def main(url: str, file: Path) -> None:
    url = url.rstrip("/")
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=30) as answer:
            name = json.load(answer)["data"][0]["id"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SystemExit(f"{url}/models does not list a model ({error}); the URL is where the API begins") from None
    table = [("provider", "local"), ("model", name), ("base_url", url)]
    lines = ["[models.demo]", *(f"{key} = {json.dumps(value)}" for key, value in table)]
    file.write_text("\n".join(lines) + "\n")
    print(f"{name} at {url} is tried out; a small one takes some minutes.", flush=True)
    command = [Path(sys.executable).with_name("orchestrator"), "doctor", "--probe", "demo", "--config", file, "--json"]
    probed = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if probed.returncode:
        raise SystemExit(probed.returncode)
    found = json.loads(probed.stdout)
    file.write_text("\n".join([*lines, *found["lines"]]) + "\n")
    print(f"It acts best so: {', '.join(found['lines'])}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
