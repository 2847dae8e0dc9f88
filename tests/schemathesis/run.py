#!/usr/bin/env python3
"""schemathesis against a running daemon, its own OpenAPI document, ids that exist and limits out of the way.

    run.py DAEMON SCHEMATHESIS [EXAMPLES]

starts DAEMON in a temporary directory on free ports, makes one of everything, writes schemathesis' configuration and runs it with
EXAMPLES (25) for each operation, from the seed TRUNKLINE_TEST_SEED (1). Its exit status is schemathesis'. Whatever happens, the daemon is stopped by its pid.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

# Operations that aren't asked, and why.
LEFT_OUT = {
    "streamEvents": "a stream has no end",
    "streamPhoneEvents": "a stream has no end",
}

# Checks that can't hold for an operation, and why.
CANT_HOLD = {
    # A cursor is opaque: a text of the right form isn't one that was given out.
    "positive_data_acceptance": {
        "a cursor is opaque": [
            "listAgents", "listVoices", "listNumbers", "listAuthFailures", "listOutboundTrunks", "listDestinations",
            "listAgentDestinations", "listKeys", "listOrgKeys", "listOrgNumbers", "listRoles", "listWebhooks", "listDeliveries", "listDashboardSessions", "exportContact",
            "listPrompts", "listContacts", "listOldCredentials",
        ],
        "a version is opaque": [
            "updateOrg", "deleteOrg", "suspendOrg", "resumeOrg", "rotateWidgetToken", "deleteAgent", "removeInboundNumber", "unassignDestination",
            "deleteInboundTrunk", "removeTrunkNumber", "syncTrunkNumbers", "rotateTrunkCredentials", "endOldCredentials", "deleteOutboundTrunk",
            "deleteDestination", "deleteWebhook", "rotateWebhookSecret", "updateContact", "eraseContact",
        ],
        "audio must be a WAV file": ["createPrompt"],
        "the text must be an INVITE": ["explainInvite"],
        "a cursor is opaque, and dates are of many forms, the start not after the end": ["listCalls", "listHandoffEvents", "listAudit", "listPhoneAudit", "listPartnerAudit"],
        "dates are of many forms, the start not after the end": ["showUsage", "showPhoneUsage", "showPartnerUsage"],
        "a key must end in the future": ["createKey", "createOrgKey"],
        "numbers must be verified ones of the org": ["createInboundTrunk", "updateInboundTrunk", "addTrunkNumbers"],
        "the code must be the one that was spoken": ["confirmNumber"],
        "ids must be those of numbers or trunks of the org": ["setInboundNumbers", "addInboundNumber", "setOutboundTrunk", "assignDestination"],
        "the value depends on the type that the destination has": ["updateDestination"],
        "the contact must be one of the org": ["reportHandoff"],
        "ids must be those of roles of the org": ["createLoginLink"],
        "the operator says how much a partner may allow": ["updateOrgLimits"],
        "agents and numbers must be those of the org": ["replayRoutes"],
        "a call must be up, and the destination the agent's": ["transferCall"],
        "not every URL may be sent to": ["createWebhook", "updateWebhook"],
        "not every host may be called": ["createDestination", "createOutboundTrunk", "renameOutboundTrunk"],
        "nor every runtime, and the voice must be one that the operator offers": ["createAgent", "updateAgent"],
    },
    "negative_data_rejection": {
        "a repeated Idempotency-Key gets the answer that is kept, before the version is judged": [
            "rotateWidgetToken", "rotateTrunkCredentials", "rotateWebhookSecret", "assignDestination",
        ],
    },
}


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class House:
    """What the daemon was told to make."""

    def __init__(self, outset):
        self.base = outset["http"]
        self.key = outset["api_key"]
        self.partner = outset["partner_key"]
        self.outset = outset

    def ask(self, method, path, body=None, key=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method)
        request.add_header("Authorization", f"Bearer {key or self.key}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def agent(self, name):
        body = {"name": name, "type": "inbound", "language": "en", "first_message": "Hello", "use_org_knowledgebase": False}
        return self.ask("POST", "/phone", body)["id"]

    def destination(self, name):
        body = {"name": name, "type": "sip", "value": "sip:sales@pbx.example.com"}
        return self.ask("POST", "/phone/sip/transfer-destinations", body)["id"]

    def trunk(self, name):
        body = {"name": name, "host": "192.0.2.1", "caller_number": "+442071838750"}
        return self.ask("POST", "/phone/sip/outbound-trunks", body)["id"]

    def webhook(self):
        return self.ask("POST", "/webhooks", {"url": "https://hooks.example.com/x", "enabled": False})["id"]

    def visitor(self):
        return self.ask("POST", "/widget/authenticate-user", {"email": "ann@example.com"})["token"]

    def org(self):
        body = {"name": "Acme", "external_id": "acme"}
        return self.ask("POST", "/partner/v1/orgs", body, self.partner)


def toml(value):
    return json.dumps(value)


def configuration(house, document):
    operations = {
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    agent, spare_agent = house.agent("Stays"), house.agent("Goes")
    destination, spare_destination = house.destination("Stays"), house.destination("Goes")
    trunk, spare_trunk = house.trunk("Stays"), house.trunk("Goes")
    made = house.org()
    org = made["id"]
    ids = {
        "agent_id": agent,
        "destination_id": destination,
        "trunk_id": trunk,
        "orgId": org,
        "externalId": "acme",
        "phone_number": house.outset["phone_number"],
    }
    spare = {
        "deleteAgent": {"agent_id": spare_agent},
        "deleteDestination": {"destination_id": spare_destination},
        "deleteOutboundTrunk": {"trunk_id": spare_trunk},
    }
    if "createWebhook" in operations:
        ids["webhook_id"] = house.webhook()
        spare["deleteWebhook"] = {"webhook_id": house.webhook()}
    lines = [
        # The same Idempotency-Key with another body is 422, and a key may come twice.
        "[checks.positive_data_acceptance]\nexpected-statuses = [\"2xx\", 304, 401, 403, 404, 409, 422]",
        f"[auth.openapi.orgKey]\nbearer = {toml(house.key)}",
        f"[auth.openapi.partnerKey]\nbearer = {toml(house.partner)}",
        f"[auth.openapi.widgetToken]\nbearer = {toml(house.visitor())}",
        f"[auth.openapi.embedToken]\nbearer = {toml(made['widget_token'])}",
        "[parameters]",
        *(f'"path.{name}" = {toml(value)}' for name, value in ids.items()),
    ]
    told = {}
    for check, reasons in CANT_HOLD.items():
        for reason, names in reasons.items():
            for name in names:
                told.setdefault(name, []).append(f"# {reason}\nchecks.{check}.enabled = false")
    for name, reason in LEFT_OUT.items():
        told.setdefault(name, []).append(f"# {reason}\nenabled = false")
    for name, values in spare.items():
        parameters = ", ".join(f'"path.{key}" = {toml(value)}' for key, value in values.items())
        told.setdefault(name, []).append(f"parameters = {{ {parameters} }}")
    for name, settings in told.items():
        if name not in operations:
            sys.exit(f"{name} is told about here, but is no operation of the document")
        lines += ["[[operations]]", f"include-operation-id = {toml(name)}", *settings]
    return "\n".join(lines) + "\n"


def started(daemon, folder):
    http = free_port(socket.SOCK_STREAM)
    settings = {
        "TRUNKLINE__HTTP__LISTEN": f"127.0.0.1:{http}",
        "TRUNKLINE__SIP__UDP": f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}",
        "TRUNKLINE__SIP__TCP": f"127.0.0.1:{free_port(socket.SOCK_STREAM)}",
        "TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE": "1000000",
        "TRUNKLINE__LIMITS__PARTNER_REQUESTS_PER_MINUTE": "1000000",
        "TRUNKLINE__LIMITS__LOGIN_LINKS_PER_MINUTE": "1000000",
        "TRUNKLINE__LOG__LEVEL": "warn",
    }
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE__")}
    config = os.path.join(folder, "trunkline.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write('[phone]\nvoices = [{ id = "ann", name = "Ann" }, { id = "bob", name = "Bob" }]\n')
    with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [os.path.abspath(daemon), "quickstart", "--json", "--config", config],
            cwd=folder, env={**ours, **settings}, stdout=subprocess.PIPE, stderr=log, text=True,
        )
    return process, http


def ready(http):
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http}/readyz", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("the daemon isn't ready")


def main():
    daemon, schemathesis = sys.argv[1:3]
    examples = sys.argv[3] if len(sys.argv) > 3 else "25"
    with tempfile.TemporaryDirectory() as folder:
        process, http = started(daemon, folder)
        try:
            house = House(json.loads(process.stdout.readline()))
            house.base = f"http://127.0.0.1:{http}"
            ready(http)
            with urllib.request.urlopen(house.base + "/openapi.json", timeout=10) as answer:
                document = json.load(answer)
            path = os.path.join(folder, "schemathesis.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(configuration(house, document))
            command = [
                schemathesis, "--config-file", path, "run", house.base + "/openapi.json",
                "--max-examples", examples, "--phases", "examples,coverage,fuzzing", "--continue-on-failure",
                "--request-timeout", "20", "--suppress-health-check", "all", "--seed", os.environ.get("TRUNKLINE_TEST_SEED", "1"),
                "--generation-allow-x00", "false", "--no-color", *sys.argv[4:],
            ]
            status = subprocess.run(command, check=False).returncode
            with open(os.path.join(folder, "log"), encoding="utf-8") as log:
                broken = [line for line in log if "request failed" in line]
            sys.stderr.writelines(broken[:20])
            sys.exit(status or bool(broken))
        finally:
            process.terminate()
            process.wait(30)


main()
