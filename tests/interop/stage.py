"""The daemon and Asterisk with their settings, and what the flows do with both."""
import contextlib
import itertools
import json
import re
import time

from daemon import *
from pbx import Asterisk
from phone import Phone

DIALPLAN = f"""
[from-trunkline]
exten => {ANSWERS},1,Answer()
 same => n,Milliwatt()
exten => {BUSY},1,Hangup(17)
exten => {RINGS},1,Ringing()
 same => n,Wait(40)
 same => n,Hangup(19)
exten => {DECLINES},1,Hangup(21)
exten => {DEAF},1,Hangup(18)
exten => {SOON},1,Ringing()
 same => n,Wait(3)
 same => n,Hangup(19)
exten => {REFERS},1,Answer()
 same => n,Wait(1)
 same => n,Transfer(PJSIP/sip:+441632960199@{PBX})
 same => n,NoOp(${{TRANSFERSTATUS}})
 same => n,Wait(1)
 same => n,Hangup()
exten => {PLAYS},1,Progress()
 same => n,PlayTones(440)
 same => n,Wait(2)
 same => n,Answer()
 same => n,Milliwatt()
exten => {REDIRECTS},1,Transfer(PJSIP/sip:{ANSWERS}@{PBX})
exten => {PHONE},1,Dial(PJSIP/desk,20)
 same => n,Hangup(19)
exten => trunkline,1,Set(NUMBER=${{PJSIP_HEADER(read,To)}})
 same => n,Set(NUMBER=${{CUT(NUMBER,@,1)}})
 same => n,Set(NUMBER=${{CUT(NUMBER,:,2)}})
 same => n,Goto(${{NUMBER}},1)
exten => i,1,Hangup(1)

[phones]
exten => tone,1,Answer()
 same => n,Milliwatt()
exten => 900,1,Goto(tone,1)
exten => quiet,1,Answer()
 same => n,Wait(60)
exten => keys,1,Answer()
 same => n,PlayTones(440)
 same => n,Wait(2)
 same => n,SendDTMF(1,250,200)
 same => n,Wait(60)
exten => _+X.,1,Dial(PJSIP/${{EXTEN}}@trunkline,60)
exten => transferable,1,Dial(PJSIP/{{number}}@trunkline,60,Tt)
exten => account,1,Dial(PJSIP/{{number}}@trunkline-account,20)
exten => withheld,1,Set(CALLERID(pres)=prohib)
 same => n,Dial(PJSIP/{{number}}@trunkline,60)
exten => doctor,1,Dial(PJSIP/doctor@trunkline,20)
"""

PHONE_SECTIONS = f"""
[desk]
type=endpoint
context=phones
disallow=all
allow=ulaw
direct_media=yes
aors=desk
[desk]
type=aor
contact=sip:phone@{DESK}:{PHONE_PORT}
"""


# As docs/interop.md has them.
TRANSPORTS = f"""
[transport-udp]
type=transport
protocol=udp
bind=0.0.0.0
[transport-tcp]
type=transport
protocol=tcp
bind=0.0.0.0
[transport-tls]
type=transport
protocol=tls
bind=0.0.0.0:5061
method=tlsv1_2
verify_server=yes
ca_list_file={Asterisk.HOME}/etc/authority.pem
"""


class Stage:
    def __init__(self, program, root, namespace):
        self.daemon, self.asterisk = Daemon(program), Asterisk(root, namespace)
        self.pasted = self.daemon.run("trunk", "paste", "asterisk").stdout
        self.quickstarts = self.daemon.api(f"/phone/{self.daemon.agent}")[1]["runtime"]
        self.numbers = itertools.count(1)
        self.configure()
        self.asterisk.start()

    def configure(self, pasted=None, more="", dialplan=DIALPLAN):
        # The one authority that Asterisk trusts.
        self.asterisk.write("authority.pem", (self.daemon.folder / "certificate.pem").read_text())
        self.asterisk.write("pjsip.conf", TRANSPORTS + (pasted or self.pasted) + PHONE_SECTIONS + more)
        self.asterisk.write("extensions.conf", dialplan.replace("{number}", self.daemon.number))

    def reconfigure(self, **changes):
        self.configure(**changes)
        self.asterisk.ask("module reload res_pjsip.so")
        self.asterisk.ask("dialplan reload")
        time.sleep(0.5)

    def dial(self, who="tone", to=None, waits=True):
        """Lets somebody at the PBX call. Returns the channel's name there, and the call's id here."""
        known = {call["id"] for call in self.daemon.calls()}
        channel = f"flow{next(self.numbers)}"
        what = {"Channel": who if "/" in who else f"Local/{who}@phones/n", "ChannelId": channel, "OtherChannelId": f"{channel}-2"}
        if "/" in who:
            del what["OtherChannelId"]
        self.asterisk.manager.order(
            "Originate", **what, Context="phones", Exten=to or self.daemon.number, Priority="1", CallerID=f"<{CALLER}>", Async="true", Timeout="20000"
        )
        if not waits:
            return channel, None
        new = lambda: next((call for call in self.daemon.calls() if call["id"] not in known), None)
        return channel, until(new, "the call arrives")["id"]

    def up(self, id):
        return until(lambda: (lambda call: call["status"] == "in_progress" and call)(self.daemon.call(id)), f"call {id} is answered")

    def trunk_channel(self):
        """The PBX's channel to the daemon."""
        found = until(lambda: re.search(r"PJSIP/trunkline-\w+", self.asterisk.ask("core show channels concise")), "a channel to the daemon")
        return found[0]

    def phone_channel(self):
        found = re.search(r"PJSIP/desk-\w+", self.asterisk.ask("core show channels concise"))
        check(found, "a channel to the phone")
        return found[0]

    def hang_up(self, channel):
        try:
            self.asterisk.manager.order("Hangup", Channel=channel)
        except Missed:
            pass

    def destination(self, name, value, kind="phone", via=None):
        known = self.daemon.api("/phone/sip/transfer-destinations")[1]["items"]
        if not any(each["name"] == name for each in known):
            created = {"name": name, "type": kind, "value": value}
            status, answer = self.daemon.api(f"/phone/sip/agents/{self.daemon.agent}/transfer-destinations", {"create": created})
            check(status < 300, f"{name}: {answer}")
        return name

    def transfer(self, id, name):
        status, answer = self.daemon.api(f"/phone/calls/{id}/transfer", {"destination": name, "reasons": ["user_requested_human_assistance"], "summary": "x"})
        check(status == 202, f"transfer to {name}: {status} {answer}")
        return self.settled(id)

    def runtime(self, runtime):
        status, answer = self.daemon.api(f"/phone/{self.daemon.agent}", {"runtime": runtime}, "PATCH")
        check(status == 200, answer)

    def report(self):
        """Calls doctor@, and returns the report that this makes."""
        channel = self.dial(to="doctor", waits=False)[0]
        self.asterisk.manager.event("Hangup", Uniqueid=channel)
        time.sleep(1.5)
        report = self.daemon.run("trunk", "doctor").stdout
        check("authentication" in report, report)
        return report

    def settled(self, id):
        done = ("completed", "failed", "unknown")
        state = lambda: (lambda call: call["transfer"] and call["transfer"]["status"] in done and call)(self.daemon.call(id))
        return until(state, "the transfer settles", 60)

    def outbound_trunk(self, **fields):
        """Gives the agent an outbound trunk to the PBX, once."""
        name = fields.setdefault("name", "PBX")
        known = self.daemon.api("/phone/sip/outbound-trunks")[1]["items"]
        found = next((each for each in known if each["name"] == name), None)
        if not found:
            status, found = self.daemon.api("/phone/sip/outbound-trunks", {"host": PBX, "caller_number": self.daemon.number, "transfer_way": "auto"} | fields)
            check(status == 201, found)
        status, answer = self.daemon.api(f"/phone/sip/agents/{self.daemon.agent}/outbound-trunk", {"trunk_id": found["id"]}, "PUT")
        check(status == 200, answer)
        return found

    def call_out(self, number, **fields):
        body = {"phone_agent_id": self.daemon.agent, "phone_number": number, "ringing_timeout_s": 10} | fields
        status, answer = self.daemon.api("/phone/outbound-call", body)
        check(status == 201, answer)
        return answer["call_id"]

    @contextlib.contextmanager
    def agent(self, runtime):
        """Gives the agent another runtime for a while."""
        self.runtime(runtime)
        try:
            yield
        finally:
            self.runtime(self.quickstarts)

    @contextlib.contextmanager
    def sip_runtime(self, **what):
        with contextlib.closing(Phone(RUNTIME, **what)) as runtime, self.agent({"type": "sip", "uri": runtime.uri}):
            yield runtime

    def channel_stats(self):
        """Figures of the PBX's channel to the daemon: packets received and lost, sent and reported as lost."""
        shown = self.asterisk.ask("pjsip show channelstats")
        row = re.search(r"trunkline-\S+ +\S+ +\S+ +(\d+) +(\d+) +\d+ +[\d.]+ +(\d+) +(\d+)", shown)
        check(row, shown)
        return dict(zip(("received", "lost", "sent", "reported_lost"), map(int, row.groups())))

    def idle(self):
        until(lambda: "0 active channels" in self.asterisk.ask("core show channels count"), "Asterisk has no channel left")

    def show(self):
        """Prints the last call: what the record says, and its ladder."""
        for call in self.daemon.calls()[:1]:
            print(json.dumps(call))
            print(self.daemon.ladder(call["id"]))

    def recover(self):
        """Brings both back to where a flow begins, after one that failed."""
        if not self.asterisk.process:
            self.asterisk.start()
        self.asterisk.ask("channel request hangup all", fails=True)
        self.runtime(self.quickstarts)
        self.reconfigure()

    def close(self):
        self.asterisk.stop()
        self.daemon.stop()


def check_heard(figures, least):
    check(figures["received"] >= least and figures["sent"] >= least and figures["lost"] == 0 and figures["reported_lost"] == 0, figures)


def check_media(record):
    """No packet counts as lost where none was, and the quality is that of G.711."""
    for way in ("received", "sent"):
        figures = record["media"][way]
        check(figures["packets"] > 100 and figures["packets_lost"] == 0 and figures["mos"] >= 4.3, f"{way}: {figures}")


FLOWS = {}


def flow(function):
    FLOWS[function.__name__] = function
    return function
