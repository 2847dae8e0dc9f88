"""Transfers of the agent by each way, and those that the PBX makes itself."""
from stage import *

DESTINATIONS = {
    "Desk": ANSWERS,
    "Busy line": BUSY,
    "Nobody": SOON,
    "Declining": DECLINES,
    "Deaf": DEAF,
    "Unknown": ABSENT,
}


KEPT = (True, "completed", None)
LOST = (False, "completed", "caller_lost")


def transferred(stage, way, expected, pasted=None):
    """Transfers a caller to each destination. `expected`: way, state and code of the transfer, whether the PBX still has its caller, and the
    record's status and reason; a list of such has alternatives."""
    stage.reconfigure(pasted=pasted)
    # The first makes the trunk forget what it has learnt.
    for each in ("bridge", way):
        stage.daemon.run("trunk", "update", "--transfer-way", each)
    faults = []
    for name, number in DESTINATIONS.items():
        stage.destination(name, number)
        channel, id = stage.dial()
        stage.up(id)
        time.sleep(1)
        stage.transfer(id, name)
        # A PBX that has lost its caller gets its BYE after five seconds, and hangs up before.
        time.sleep(2)
        has_caller = stage.asterisk.alive(channel)
        stage.hang_up(channel)
        record = stage.daemon.ended(id)
        stage.idle()
        transfer = record["transfer"]
        found = (transfer["way"], transfer["status"], transfer["sip_code"]), (has_caller, record["status"], record["reason"])
        wanted = expected[name] if isinstance(expected[name], list) else [expected[name]]
        if found not in wanted:
            faults.append(f"{name}: {found}, not {expected[name]}")
            stage.show()
    check(not faults, "; ".join(faults))


BRIDGED = {
    "Desk": (("bridge", "completed", None), (True, "transferred", None)),
    "Busy line": (("bridge", "failed", 486), KEPT),
    "Nobody": (("bridge", "failed", 480), KEPT),
    "Declining": (("bridge", "failed", 403), KEPT),
    "Deaf": (("bridge", "failed", 408), KEPT),
}


@flow
def transferred_by_bridge(stage):
    """`auto`, as quickstart makes it, keeps the caller whatever becomes of the transfer."""
    # Another context than the trunk's may have the number, so the PBX is asked by REFER: NOTIFY says 404, and the caller stays.
    transferred(stage, "auto", BRIDGED | {"Unknown": (("refer", "failed", 404), KEPT)})


@flow
def transferred_by_refer(stage):
    """REFER: Asterisk takes the caller into its dialplan, and loses it there where nobody answers. The record says so."""
    lost = {name: (("refer", "failed", 503), LOST) for name in ("Busy line", "Nobody", "Declining", "Deaf")}
    # Where a phone declines within milliseconds, Asterisk may say 200 before it knows of it: nobody has confirmed that.
    unconfirmed = (("refer", "completed", None), (False, "completed", "transfer_unconfirmed"))
    lost["Declining"] = [lost["Declining"], unconfirmed]
    desk = {"Desk": (("refer", "completed", None), (True, "completed", "transfer_unconfirmed"))}
    transferred(stage, "refer", desk | lost | {"Unknown": (("bridge", "failed", 404), KEPT)})


@flow
def transfer_refused(stage):
    """With `allow_transfer=no` a REFER is 603, and the transfer goes on as a bridge."""
    unknown = {"Unknown": (("bridge", "failed", 404), KEPT)}
    transferred(stage, "refer", BRIDGED | unknown, stage.pasted.replace("allow_transfer=yes", "allow_transfer=no"))
    stage.daemon.run("trunk", "update", "--transfer-way", "auto")
    stage.reconfigure()


def heard_meanwhile(*phones):
    """Packets of audio that each hears in a second."""
    before = [phone.heard for phone in phones]
    time.sleep(1)
    return [phone.heard - heard for phone, heard in zip(phones, before)]


@flow
def moved_by_direct_media(stage):
    """`direct_media`: re-INVITEs right after the answer, and as the phone holds, resumes and hangs up. Hold by the API crosses with them."""
    for method in ("invite", "update"):
        lines = f"direct_media=yes\ndirect_media_method={method}"
        stage.reconfigure(pasted=stage.pasted.replace("direct_media=no", lines))
        with contextlib.closing(Phone(DESK)) as phone, stage.sip_runtime() as runtime:
            channel, id = stage.dial("PJSIP/desk")
            stage.up(id)
            until(lambda: runtime.to and runtime.to[0] == DESK, "the runtime's audio goes to the phone")
            check(min(heard_meanwhile(phone, runtime)) > 40, "both hear each other directly")
            phone.ask("INVITE", body=phone.sdp("sendonly"))
            time.sleep(1)
            # Asterisk plays its own music to the runtime, and the call counts as held by nobody.
            phones, runtimes = heard_meanwhile(phone, runtime)
            check(phones < 10 and runtimes > 40 and runtime.to[0] == PBX, f"on the phone's hold: {phones} {runtimes} {runtime.to}")
            phone.ask("INVITE", body=phone.sdp("sendrecv"))
            time.sleep(1)
            heard = heard_meanwhile(phone, runtime)
            check(min(heard) > 40, f"after the phone's hold: {heard}")
            for order in ("hold", "resume"):
                stage.daemon.run("call", order, id)
                time.sleep(0.5)
            heard = heard_meanwhile(phone, runtime)
            check(min(heard) > 40, f"after hold by the API: {heard}")
            phone.ask("BYE")
            record = stage.daemon.ended(id)
            check((record["status"], record["hangup_by"]) == ("completed", "caller"), record)

        # The quickstart's agent hears the phone at its own address.
        with contextlib.closing(Phone(DESK)) as phone:
            channel, id = stage.dial("PJSIP/desk")
            stage.up(id)
            time.sleep(5)
            check(heard_meanwhile(phone)[0] > 40, "the phone hears the agent")
            phone.ask("INVITE", body=phone.sdp("sendonly"))
            time.sleep(1)
            check(heard_meanwhile(phone)[0] < 10, "it hears nothing while it holds")
            phone.ask("INVITE", body=phone.sdp("sendrecv"))
            time.sleep(1)
            check(heard_meanwhile(phone)[0] > 40, "it hears the agent again")
            phone.ask("BYE")
            record = stage.daemon.ended(id)
            received = record["media"]["received"]
            check(record["hangup_by"] == "caller" and received["packets"] > 300 and received["packets_lost"] == 0, record)
    stage.reconfigure()


@flow
def transferred_by_the_pbx(stage):
    """Transfers that the PBX makes stay inside it: the agent talks on with the other party. A REFER of the PBX is refused."""
    for media, action, to in (("no", "BlindTransfer", None), ("yes", "BlindTransfer", None), ("no", "Atxfer", "transferable")):
        stage.reconfigure(pasted=stage.pasted.replace("direct_media=no", f"direct_media={media}"))
        with contextlib.closing(Phone(DESK)) as phone, stage.sip_runtime() as runtime:
            channel, id = stage.dial("PJSIP/desk", to)
            stage.up(id)
            time.sleep(1)
            stage.asterisk.manager.order(action, Channel=stage.phone_channel(), Exten="900", Context="phones")
            if action == "Atxfer":
                time.sleep(3)
                phone.ask("BYE")
            until(lambda: "PJSIP/desk" not in stage.asterisk.ask("core show channels concise"), f"{action}: the phone is out of the call")
            time.sleep(1)
            heard = heard_meanwhile(runtime)[0]
            check(heard > 40, f"{action}: the agent hears {heard} packets of the other party")
            check(stage.daemon.call(id)["status"] == "in_progress", "the call goes on")
            runtime.ask("BYE")
            record = stage.daemon.ended(id)
            check((record["status"], record["hangup_by"]) == ("completed", "agent"), record)
    stage.reconfigure()

    # The dialplan of a call of ours asks for a transfer.
    stage.outbound_trunk()
    id = stage.call_out(REFERS)
    stage.up(id)
    record = stage.daemon.ended(id)
    ladder = stage.daemon.ladder(id)
    check("403 Forbidden (REFER)" in ladder, ladder)
    check((record["status"], record["hangup_by"], record["transfer"]) == ("completed", "callee", None), record)
