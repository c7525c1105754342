"""What the suite starts as a client, once a scenario: it hands the scenario to the test that waits behind a socket.

It needs nothing but the standard library, so that fifty starts cost a second and not a minute.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as test:
    test.connect(sys.argv[1])
    scenario = {
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
        "url": sys.argv[2],
    }
    test.sendall(json.dumps(scenario).encode() + b"\n")
    problem = test.makefile().read()
if problem:
    sys.exit(problem)
