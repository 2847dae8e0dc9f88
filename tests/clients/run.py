#!/usr/bin/env python3
"""Generates clients of a daemon's own OpenAPI document and uses them.

    run.py DAEMON FOLDER

starts DAEMON in a temporary directory on free ports, and generates into FOLDER a client in Python, which then makes, reads, changes and
lists agents; types in TypeScript, which are compiled with use.ts; and two clients in TypeScript, by hey-api and orval, which are compiled under
`strict` and run the first integration of docs/api.md (use-sdks.ts). A warning of a generator is a failure.
Whatever happens, the daemon is stopped by its pid.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from uuid import uuid4


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def started(daemon, folder):
    settings = {
        "TRUNKLINE__HTTP__LISTEN": f"127.0.0.1:{free_port(socket.SOCK_STREAM)}",
        "TRUNKLINE__SIP__UDP": f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}",
        "TRUNKLINE__SIP__TCP": f"127.0.0.1:{free_port(socket.SOCK_STREAM)}",
        "TRUNKLINE__LOG__LEVEL": "warn",
    }
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE__")}
    return subprocess.Popen(
        [daemon, "quickstart", "--json"], cwd=folder, env={**ours, **settings}, stdout=subprocess.PIPE, text=True,
    )


def document(base):
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{base}/openapi.json", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.1)
    sys.exit("the daemon doesn't answer")


def run(*command, folder, env=None):
    env = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    if done.returncode != 0 or "arning" in done.stdout:
        sys.exit(f"{' '.join(command)}:\n{done.stdout}")


def python_client(folder):
    shutil.rmtree(os.path.join(folder, "phone_client"), ignore_errors=True)
    run(
        "openapi-python-client", "generate", "--path", "openapi.json", "--output-path", "phone_client", "--meta", "none",
        "--fail-on-warning", folder=folder,
    )
    sys.path.insert(0, folder)


def use_python(outset):
    from phone_client import AuthenticatedClient
    from phone_client.api.phone_agents import create_agent, list_agents, show_agent, update_agent
    from phone_client.models import AgentKind, CreateAgentBody, CreateAgentBodyType, Error, UpdateAgentBody

    client = AuthenticatedClient(base_url=outset["http"], token=outset["api_key"])
    asked = CreateAgentBody(
        name="Front desk", type_=CreateAgentBodyType.INBOUND, language="en", first_message="Hello", use_org_knowledgebase=False,
    )
    made = create_agent.sync(client=client, body=asked, idempotency_key=str(uuid4()))
    assert made.type_ == AgentKind.INBOUND and made.name == "Front desk", made
    changed = update_agent.sync(made.id, client=client, body=UpdateAgentBody(name="Night desk"))
    assert changed.name == "Night desk", changed
    assert show_agent.sync(made.id, client=client).updated_at == changed.updated_at
    page = list_agents.sync(client=client, limit=1)
    assert [agent.id for agent in page.items] == [made.id] and page.total == 2, page
    missing = show_agent.sync(uuid4(), client=client)
    assert isinstance(missing, Error) and missing.status_code == 404, missing


def typescript(folder):
    run("openapi-typescript", "openapi.json", "-o", "api.d.ts", folder=folder)
    run("tsc", "-p", "tsconfig.json", folder=folder)


def sdks(folder, outset):
    env = {"BASE": outset["http"], "KEY": outset["api_key"]}
    run("openapi-ts", "-i", "openapi.json", "-o", "hey", folder=folder)
    run("orval", "--config", "orval.config.cjs", folder=folder, env=env)
    run("tsc", "-p", "tsconfig-sdks.json", folder=folder)
    run("node", "built/use-sdks.js", folder=folder, env=env)


def main():
    daemon, folder = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        process = started(daemon, scratch)
        try:
            outset = json.loads(process.stdout.readline())
            with open(os.path.join(folder, "openapi.json"), "w", encoding="utf-8") as file:
                json.dump(document(outset["http"]), file)
            python_client(folder)
            use_python(outset)
            typescript(folder)
            sdks(folder, outset)
        finally:
            process.terminate()
            process.wait(30)
    print("all four generators take the document as it is, and the clients work")


main()
