"""Settings of the endpoint, transports, log-ins and registrations."""
from stage import *

VARIANTS = (
    "100rel=peer_supported",
    "allow=!all,alaw",
    "allow=!all,g722,ulaw",
    "allow=!all,opus,ulaw",
    "allow=!all,ulaw,h264,vp8",
    "dtmf_mode=info",
    "dtmf_mode=inband",
    "dtmf_mode=auto",
    "dtmf_mode=auto_info",
    "send_pai=yes\nsend_rpid=yes\ntrust_id_outbound=yes",
    "use_avpf=yes",
    "ice_support=yes",
    "rtcp_mux=yes",
    "bundle=yes",
    "user_eq_phone=yes",
    "t38_udptl=yes",
    "rtp_symmetric=yes\nforce_rport=yes\nrewrite_contact=yes",
    "timers=required",
    "rtp_engine=asterisk\nrtp_keepalive=1\nrtp_timeout=10",
    "inband_progress=yes",
    "cos_audio=5\ntos_audio=ef",
    "stir_shaken=no\nmoh_passthrough=yes",
)


@flow
def spoken_to_by_each_setting(stage):
    """Settings of the endpoint: audio both ways, and keys, which the echo agent transfers by."""
    stage.destination("First", ANSWERS)
    stage.daemon.run("trunk", "update", "--transfer-way", "auto")
    faults = []
    for lines in VARIANTS:
        stage.reconfigure(pasted=stage.pasted.replace("direct_media=no", "direct_media=no\n" + lines, 1))
        try:
            with stage.agent({"type": "echo"}):
                channel, id = stage.dial("keys")
            stage.up(id)
            until(lambda: stage.daemon.call(id)["transfer"], "the key is read", 8)
            settled = stage.settled(id)["transfer"]
            check(settled["status"] == "completed", settled)
            stage.hang_up(channel)
            record = stage.daemon.ended(id)
            received = record["media"]["received"]
            check(received["packets"] > 60 and received["packets_lost"] == 0, received)
        except Missed as missed:
            faults.append(f"{lines!r}: {missed}")
            stage.show()
            stage.hang_up(channel)
            stage.idle()
    stage.reconfigure()
    check(not faults, "; ".join(faults))


ACCOUNT = """
[global]
type=global
endpoint_identifier_order=username,ip
[trunkline-account]
type=endpoint
context=from-trunkline
disallow=all
allow=ulaw,alaw
auth=trunkline-account
aors=trunkline-account
[trunkline-account]
type=auth
auth_type=userpass
username=trunkline-account
password=secret
[trunkline-account]
type=aor
max_contacts=1
"""


@flow
def registered(stage):
    """Asterisk registers with Trunkline, and is called by that; Trunkline registers with Asterisk, and is called by that."""
    made = stage.daemon.made["trunk"]
    stage.reconfigure(more=f"""
[trunkline-registration]
type=registration
server_uri=sip:{US}
client_uri=sip:{made['auth_username']}@{US}
outbound_auth=trunkline
contact_user=trunkline
""")
    trunk = lambda: stage.daemon.api("/phone/sip/inbound-trunk")[1]
    until(lambda: trunk()["registered"], "the PBX is registered")
    stage.outbound_trunk(name="registered", to_registered=True, host=None)
    for number, status in ((ANSWERS, "completed"), (BUSY, "busy"), (ABSENT, "failed")):
        id = stage.call_out(number)
        if status == "completed":
            stage.up(id)
            time.sleep(1)
            stage.daemon.run("call", "hangup", id)
        record = stage.daemon.ended(id)
        check(record["status"] == status, record)
    stage.reconfigure()
    stage.asterisk.restart()

    # The PBX's account for us.
    stage.configure(more=ACCOUNT)
    stage.asterisk.restart()
    ours = stage.outbound_trunk(name="account", username="trunkline-account", password="secret", register=True)
    shown = lambda: stage.daemon.api(f"/phone/sip/outbound-trunks/{ours['id']}")[1]
    until(lambda: shown()["registration"]["status"] == "registered", "Trunkline is registered")
    stage.daemon.run("trunk", "update", "--allow", PBX)
    channel, id = stage.dial("tone", to="account")
    stage.up(id)
    time.sleep(1)
    stage.hang_up(channel)
    record = stage.daemon.ended(id)
    check(record["status"] == "completed", record)
    stage.daemon.run("trunk", "update", "--allow-none")
    stage.daemon.api(f"/phone/sip/agents/{stage.daemon.agent}/outbound-trunk", {"trunk_id": None}, "PUT")
    status, answer = stage.daemon.api(f"/phone/sip/outbound-trunks/{ours['id']}", method="DELETE")
    check(status == 200, answer)
    stage.configure()
    stage.asterisk.restart()


@flow
def logged_in_wrongly(stage):
    """A wrong password: the PBX gives up after a try or two, and the failure is shown."""
    stage.reconfigure(pasted=re.sub("password=.*", "password=wrong", stage.pasted))
    channel = stage.dial(waits=False)[0]
    stage.asterisk.manager.event("Hangup", Uniqueid=channel)
    failures = until(lambda: stage.daemon.api("/phone/sip/inbound-trunk/auth-failures")[1]["items"], "the failure is shown")
    found = [(failure["source"], failure["part"]) for failure in failures]
    check(found in ([(PBX, "password")], [(PBX, "password")] * 2), failures)
    report = stage.daemon.run("doctor", fails=True).stdout
    check("The password is wrong" in report, report)
    stage.reconfigure()


@flow
def connected(stage):
    """Over TCP and TLS: OPTIONS, a call, hold, and a BYE of ours."""
    for transport, port in (("tcp", 5060), ("tls", 5061)):
        pasted = stage.pasted.replace("direct_media=no", f"direct_media=no\ntransport=transport-{transport}")
        pasted = re.sub("contact=.*", rf"contact=sip:{US}:{port}\\;transport={transport}", pasted).replace("qualify_frequency=60", "qualify_frequency=2")
        stage.reconfigure(pasted=pasted)
        until(lambda: re.search(rf"transport={transport}\s.*Avail", stage.asterisk.ask("pjsip show contacts")), "the contact is available", 30)
        channel, id = stage.dial()
        stage.up(id)
        time.sleep(1)
        stage.daemon.run("call", "hold", id)
        until(lambda: stage.daemon.call(id)["held"], "it is held")
        stage.daemon.run("call", "resume", id)
        time.sleep(1)
        check_heard(stage.channel_stats(), 50)
        stage.daemon.run("call", "hangup", id)
        record = stage.daemon.ended(id)
        check(record["status"] == "completed", record)
        stage.asterisk.manager.event("Hangup", Uniqueid=channel)
        explained = stage.daemon.json("call", "explain", id)["log_in"]
        check((explained["by"], explained["transport"]) == ("digest", transport), explained)
    stage.reconfigure()


@flow
def encrypted(stage):
    """SRTP: refused by media of ours, by name."""
    alone = "The offer holds encrypted audio (SRTP) alone"
    failed, completed = ("failed", 488, "no_common_media", alone), ("completed", 200, None, None)
    for lines, expected, advice in (
        ("media_encryption=sdes", failed, "Turn SRTP off for this trunk unless the agents' runtimes speak it."),
        ("media_encryption=sdes\nmedia_encryption_optimistic=yes", completed, "It offers PCMU, PCMA."),
    ):
        stage.reconfigure(pasted=stage.pasted.replace("direct_media=no", "direct_media=no\n" + lines))
        # The quickstart's agent, and a runtime that answers in the clear.
        for agent in (contextlib.nullcontext, stage.sip_runtime):
            with agent():
                channel, id = stage.dial()
                time.sleep(1.5)
                stage.hang_up(channel)
                record = stage.daemon.ended(id)
                found = tuple(record[field] for field in ("status", "sip_code", "reason", "reason_detail"))
                check(found == expected, f"{lines}: {found}")
                explained = stage.daemon.run("call", "explain", id).stdout
                check((alone in explained) == (expected == failed), explained)
        check(advice in stage.report(), f"{lines}: {stage.report()}")
    report = stage.daemon.run("doctor", fails=True).stdout
    check("It offers only encrypted media (SRTP" in report, report)
    stage.reconfigure()
