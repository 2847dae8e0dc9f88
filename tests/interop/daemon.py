"""Addresses and numbers of the flows, how they wait and check, and the daemon that they call."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

US, PBX, RUNTIME, DESK = "10.99.0.1", "10.99.0.2", "10.99.0.5", "10.99.0.6"
# The daemon listens on 5060 of each address of its namespace.
PHONE_PORT = 5070
PATIENCE = 20
CALLER = "+441632960001"

# Numbers that the PBX has, by what becomes of a call to them.
ANSWERS, BUSY, RINGS, SOON, DECLINES, ABSENT, REFERS, PHONE, DEAF, PLAYS, REDIRECTS = (f"+4416329601{last:02}" for last in range(11))


class Missed(Exception):
    """Something that was waited for didn't happen, or is otherwise than it should be."""


def until(ready, what, patience=PATIENCE):
    """Waits until `ready` returns something true, and returns that."""
    deadline = time.monotonic() + patience
    while True:
        found = ready()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Missed(f"never: {what}")
        time.sleep(0.1)


def check(holds, what):
    if not holds:
        raise Missed(what)


class Daemon:
    """A daemon with what `quickstart` makes."""

    def __init__(self, program):
        self.program = program
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="interop-"))
        own = ["-subj", f"/CN={US}", "-addext", f"subjectAltName=IP:{US}", "-keyout", "key.pem", "-out", "certificate.pem"]
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", *own]
        subprocess.run(made, cwd=self.folder, check=True, capture_output=True)
        tls = 'tls = ["0.0.0.0:5061"]\ntls_certificate = "certificate.pem"\ntls_key = "key.pem"\n'
        # The flows look often.
        limits = "[limits]\nrequests_per_minute = 100000\n"
        (self.folder / "trunkline.toml").write_text(f'{limits}[sip]\npublic_host = "{US}"\n{tls}')
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("TRUNKLINE")}
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(
            [program, "quickstart", "--json"], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        made = self.process.stdout.readline()
        check(made, f"the daemon doesn't start: {(self.folder / 'log').read_text()}")
        self.made = json.loads(made)
        self.agent, self.number = self.made["agent_id"], self.made["phone_number"]
        # What it prints of each call is read, so that the pipe never fills.
        threading.Thread(target=lambda: [None for _ in self.process.stdout], daemon=True).start()
        until(lambda: self.run("health", fails=True).returncode == 0, "the daemon takes calls")

    def run(self, *arguments, fails=False):
        """Runs a command of the command line, as the operator of this folder."""
        ran = subprocess.run([self.program, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True)
        check(fails or ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}")
        return ran

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json").stdout)

    def api(self, path, body=None, method=None):
        """Calls the API with the org's key. Returns status and body."""
        request = urllib.request.Request(
            self.made["http"] + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self.made['api_key']}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def calls(self):
        return self.api("/phone/calls?limit=20")[1]["items"]

    def call(self, id):
        return self.api(f"/phone/calls/{id}")[1]

    def ended(self, id, patience=PATIENCE):
        """Returns the record of a call, once it has ended."""
        live = ("queued", "ringing", "in_progress")
        return until(lambda: (lambda call: call["status"] not in live and call)(self.call(id)), f"call {id} ends", patience)

    def ladder(self, id):
        return self.run("trace", id, "--once").stdout

    def stop(self):
        # SIGTERM would wait for the calls of a flow that failed.
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)
