"""Calls of the PBX to an agent, and of an agent to the PBX."""
from stage import *


@flow
def qualified(stage):
    """OPTIONS of qualify_frequency is answered."""
    until(lambda: "Avail" in stage.asterisk.ask("pjsip show contacts"), "the contact is available", 65)


@flow
def advised(stage):
    """A call to doctor@ makes a report of what this PBX does."""
    report = stage.report()
    for line in ("It logs in with the trunk's credentials", "It offers PCMU, PCMA", "telephone-event (RFC 4733)", "It refreshes calls"):
        check(line in report, report)


@flow
def echoed(stage):
    """The quickstart's agent answers; neither side loses audio, by its own figures and by the other's reports."""
    channel, id = stage.dial()
    stage.up(id)
    time.sleep(6)
    check_heard(stage.channel_stats(), 250)
    stage.hang_up(channel)
    record = stage.daemon.ended(id)
    check((record["status"], record["hangup_by"], record["sip_code"]) == ("completed", "caller", 200), record)
    check_media(record)


@flow
def silent(stage):
    """A PBX that plays nothing sends no RTP, hears the agent all the same, and isn't hung up on."""
    channel, id = stage.dial("quiet")
    stage.up(id)
    time.sleep(4)
    figures = stage.channel_stats()
    check(figures["received"] > 150 and figures["sent"] == 0, figures)
    stage.hang_up(channel)
    record = stage.daemon.ended(id)
    check((record["status"], record["hangup_by"]) == ("completed", "caller"), record)
    received = record["media"]["received"]
    check((received["packets"], received["packets_lost"], received["mos"]) == (0, 0, None), received)


@flow
def answered_by_a_runtime(stage):
    """A runtime over SIP talks with the PBX, and hangs up."""
    with stage.sip_runtime() as runtime:
        channel, id = stage.dial()
        stage.up(id)
        time.sleep(3)
        check_heard(stage.channel_stats(), 100)
        check(runtime.heard > 100, f"the runtime hears {runtime.heard} packets")
        runtime.ask("BYE")
        record = stage.daemon.ended(id)
        check((record["status"], record["hangup_by"]) == ("completed", "agent"), record)
        stage.asterisk.manager.event("Hangup", Uniqueid=channel)


@flow
def refused_by_a_runtime(stage):
    """486 of a runtime reaches the PBX as busy; a caller that gives up while it rings cancels it."""
    with stage.sip_runtime(answer=486):
        channel, id = stage.dial()
        record = stage.daemon.ended(id)
        check((record["status"], record["sip_code"], record["reason"]) == ("busy", 486, "declined"), record)
        end = stage.asterisk.manager.event("Hangup", Uniqueid=channel)
        check(end["Cause"] == "17", end)

    with stage.sip_runtime(answer=180) as runtime:
        channel, id = stage.dial()
        until(lambda: stage.daemon.call(id)["status"] == "ringing", "it rings")
        stage.hang_up(channel)
        record = stage.daemon.ended(id)
        check((record["status"], record["hangup_by"]) == ("canceled", "caller"), record)
        until(lambda: runtime.of("CANCEL"), "the runtime gets CANCEL")


@flow
def held_by_the_api(stage):
    """Hold and resume, of the echo agent and of a runtime: neither side's figures count what the other skips."""
    channel, id = stage.dial()
    stage.up(id)
    for turn in range(2):
        time.sleep(2)
        stage.daemon.run("call", "hold", id)
        until(lambda: stage.daemon.call(id)["held"], "it is held")
        time.sleep(2)
        stage.daemon.run("call", "resume", id)
        until(lambda: not stage.daemon.call(id)["held"], "it is resumed")
    time.sleep(7)
    check_heard(stage.channel_stats(), 500)
    stage.hang_up(channel)
    record = stage.daemon.ended(id)
    check_media(record)

    with stage.sip_runtime() as runtime:
        channel, id = stage.dial()
        stage.up(id)
        time.sleep(1)
        stage.daemon.run("call", "hold", id)
        until(lambda: stage.daemon.call(id)["held"], "it is held")
        time.sleep(0.5)
        before = runtime.heard
        time.sleep(1)
        check(runtime.heard - before < 10, f"the runtime hears {runtime.heard - before} packets of a caller on hold")
        stage.daemon.run("call", "resume", id)
        time.sleep(1.5)
        check(runtime.heard - before > 40, "the runtime hears the caller again")
        check_heard(stage.channel_stats(), 60)
        stage.hang_up(channel)
        stage.daemon.ended(id)


@flow
def keys(stage):
    """A key that the PBX sends among the audio is read by the echo agent, which transfers to its first destination."""
    stage.destination("First", ANSWERS)
    with stage.agent({"type": "echo"}):
        channel, id = stage.dial("keys")
        stage.up(id)
        until(lambda: stage.daemon.call(id)["transfer"], "the key is read")
        settled = stage.settled(id)["transfer"]
        check((settled["destination"], settled["status"]) == ("First", "completed"), settled)
        stage.hang_up(channel)
        stage.daemon.ended(id)


@flow
def dialled(stage):
    """Calls of the agent through an outbound trunk, by what becomes of them."""
    stage.outbound_trunk()
    for number, *expected in (
        (BUSY, "busy", 486, "callee_busy", 17),
        (DECLINES, "failed", 403, "callee_declined", 21),
        (ABSENT, "failed", 404, "number_unreachable", None),
        (DEAF, "no_answer", 408, "callee_no_answer", 18),
        (RINGS, "no_answer", 408, "ringing_timeout", None),
    ):
        record = stage.daemon.ended(stage.call_out(number), 30)
        found = [record[field] for field in ("status", "sip_code", "reason", "q850_cause")]
        check(found == expected, f"{number}: {found}")

    id = stage.call_out(ANSWERS)
    stage.up(id)
    time.sleep(6)
    check_heard(stage.channel_stats(), 250)
    stage.daemon.run("call", "hangup", id)
    record = stage.daemon.ended(id)
    check(record["status"] == "completed", record)
    check_media(record)

    id = stage.call_out(RINGS)
    until(lambda: stage.daemon.call(id)["status"] == "ringing", "it rings")
    stage.daemon.run("call", "hangup", id)
    record = stage.daemon.ended(id)
    check(record["status"] == "canceled", record)
    stage.idle()

    with stage.sip_runtime() as runtime:
        id = stage.call_out(ANSWERS)
        stage.up(id)
        time.sleep(3)
        check_heard(stage.channel_stats(), 100)
        check(runtime.heard > 100, f"the runtime hears {runtime.heard} packets")
        stage.hang_up(stage.trunk_channel())
        record = stage.daemon.ended(id)
        check((record["status"], record["hangup_by"]) == ("completed", "callee"), record)


@flow
def refreshed(stage):
    """Sessions of 90 s are refreshed after half of that, with the quickstart's agent and with a runtime."""
    stage.reconfigure(pasted=stage.pasted.replace("timers=yes", "timers=always\ntimers_min_se=90\ntimers_sess_expires=90\n100rel=yes"))
    with stage.sip_runtime():
        first = stage.dial()
        stage.up(first[1])
        stage.runtime(stage.quickstarts)
        second = stage.dial()
        stage.up(second[1])
        time.sleep(50)
        for channel, id in (first, second):
            check(stage.daemon.call(id)["status"] == "in_progress", "it is up")
            ladder = stage.daemon.ladder(id)
            check("--> caller  UPDATE" in ladder and "<-- caller  200 OK (UPDATE)" in ladder, ladder)
            stage.hang_up(channel)
            record = stage.daemon.ended(id)
            check((record["status"], record["hangup_by"]) == ("completed", "caller"), record)
        check_media(record)
    stage.reconfigure()


@flow
def killed(stage):
    """Asterisk is killed while calls are up: they end once it has answered neither audio nor two questions."""
    stage.daemon.api(f"/phone/{stage.daemon.agent}", {"media_timeout_s": 5}, "PATCH")
    channel, id = stage.dial()
    stage.up(id)
    time.sleep(2)
    stage.asterisk.kill()
    record = stage.daemon.ended(id, 90)
    check((record["status"], record["reason"], record["hangup_by"]) == ("completed", "media_silent", "platform"), record)
    ladder, report = stage.daemon.ladder(id), stage.daemon.run("doctor", fails=True).stdout
    check("nobody listens" in ladder and "withheld" not in ladder + report, ladder + report)
    stage.asterisk.start()
    channel, id = stage.dial()
    stage.up(id)
    stage.hang_up(channel)
    stage.daemon.ended(id)


@flow
def withheld(stage):
    """A caller that withholds its number: the record keeps the number where the PBX gives it, and flags it."""
    for lines, number in (("", "anonymous"), ("send_pai=yes\ntrust_id_outbound=yes", CALLER)):
        stage.reconfigure(pasted=stage.pasted.replace("direct_media=no", "direct_media=no\n" + lines))
        channel, id = stage.dial(to="withheld")
        stage.up(id)
        stage.hang_up(channel)
        record = stage.daemon.ended(id)
        found = [record[name] for name in ("from_number", "caller_withheld", "contact_id")]
        check(found == [number, True, None], found)
    stage.reconfigure()


@flow
def announced(stage):
    """Audio before the answer, and a redirection to another number of the PBX."""
    stage.outbound_trunk()
    for number, line in ((PLAYS, "<-- caller  183 Session Progress"), (REDIRECTS, "it answered 302")):
        id = stage.call_out(number)
        stage.up(id)
        time.sleep(3)
        check_heard(stage.channel_stats(), 100)
        stage.daemon.run("call", "hangup", id)
        record = stage.daemon.ended(id)
        check((record["status"], record["sip_code"]) == ("completed", 200), record)
        ladder = stage.daemon.ladder(id)
        check(line in ladder, ladder)
        stage.idle()


@flow
def held_by_the_pbx(stage):
    """`moh_passthrough`: a phone's hold and resume reach the agent's side; the record says that it was held, and counts no packet as lost."""
    stage.reconfigure(pasted=stage.pasted.replace("direct_media=no", "direct_media=no\nmoh_passthrough=yes"))
    for agent in (contextlib.nullcontext, stage.sip_runtime):
        with contextlib.closing(Phone(DESK)) as phone, agent() as runtime:
            channel, id = stage.dial("PJSIP/desk")
            stage.up(id)
            time.sleep(2)
            for _ in range(2):
                phone.ask("INVITE", body=phone.sdp("sendonly"))
                until(lambda: stage.daemon.call(id)["held"], "it is held", 5)
                time.sleep(1)
                phone.ask("INVITE", body=phone.sdp("sendrecv"))
                until(lambda: not stage.daemon.call(id)["held"], "it is resumed", 5)
                time.sleep(2)
            phone.ask("BYE")
            record = stage.daemon.ended(id)
            check((record["status"], record["hangup_by"]) == ("completed", "caller"), record)
            if runtime is None:
                received = record["media"]["received"]
                check(received["packets"] > 200 and received["packets_lost"] == 0, received)
    stage.reconfigure()
