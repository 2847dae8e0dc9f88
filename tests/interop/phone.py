"""A phone of the PBX, or an agent's runtime, of which every message is ours."""
import re
import socket
import struct
import threading
import time

from daemon import PHONE_PORT, until


class Phone:
    """A SIP user agent over UDP that answers what it is asked, with audio: a phone of the PBX, or an agent's runtime."""

    def __init__(self, address, port=PHONE_PORT, answer=200, sdp=None):
        self.address, self.port, self.answer, self.extra = address, port, answer, sdp
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, port))
        self.rtp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.rtp.bind((address, 0))
        self.requests, self.answers, self.heard, self.to, self.dialog = [], [], 0, None, None
        # Another phone at this address mustn't repeat its branches.
        self.name = f"phone{self.rtp.getsockname()[1]}n{time.monotonic_ns()}"
        self.cseq, self.version, self.open, self.speaks = 1000, 0, True, True
        for each in (self.socket, self.rtp):
            each.settimeout(0.1)
        self.threads = [threading.Thread(target=part, daemon=True) for part in (self.serve, self.listen, self.speak)]
        for thread in self.threads:
            thread.start()

    @property
    def uri(self):
        return f"sip:phone@{self.address}:{self.port}"

    def sdp(self, direction="sendrecv"):
        self.version += 1
        media = f"m=audio {self.rtp.getsockname()[1]} RTP/AVP 0 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\n"
        return f"v=0\r\no=phone 7 {self.version} IN IP4 {self.address}\r\ns=-\r\nc=IN IP4 {self.address}\r\nt=0 0\r\n{media}a={direction}\r\n"

    def of(self, method):
        return [text for text in self.requests if text.startswith(method + " ")]

    def serve(self):
        while self.open:
            try:
                data, source = self.socket.recvfrom(65536)
            except TimeoutError:
                continue
            text = data.decode(errors="replace")
            if text.startswith("SIP/2.0 "):
                self.answers.append(text)
                status, method = int(text[8:11]), header(text, "CSeq").split()[1]
                if method == "INVITE" and status >= 200:
                    self.send(self.request("ACK", number=header(text, "CSeq").split()[0]))
                continue
            if "\r\n\r\n" not in text:
                continue
            method = text.split(" ", 1)[0]
            repeated = text in self.requests
            self.requests.append(text)
            body = text.split("\r\n\r\n", 1)[1]
            if method != "CANCEL" and body and "c=IN" in body:
                self.take(body)
            if method == "INVITE" and not repeated:
                self.source = source
                if self.answer == 180 or self.answer >= 300:
                    self.invite = text
                if "tag=" not in header(text, "To"):
                    self.reply(text, source, 180)
                if self.answer >= 200:
                    self.reply(text, source, self.answer, self.sdp(opposite(body)) if self.answer == 200 else "")
                self.dialog = text
            elif method == "CANCEL":
                self.reply(text, source, 200)
                self.reply(self.invite, source, 487)
            elif method in ("UPDATE",) and body:
                self.reply(text, source, 200, self.sdp())
            elif method != "ACK":
                self.reply(text, source, 202 if method == "REFER" else 200)

    def take(self, body):
        host = re.search(r"c=IN IP4 (\S+)", body)[1]
        port = int(re.search(r"m=audio (\d+)", body)[1])
        sends = not re.search(r"a=(sendonly|inactive)", body)
        self.audio = body
        self.to = (host, port) if port and sends and host != "0.0.0.0" else None

    def reply(self, request, source, status, body=""):
        copied = "".join(f"{name}: {value}\r\n" for name, value in headers(request) if name.lower() in ("via", "from", "call-id", "cseq", "record-route"))
        to = header(request, "To")
        to += "" if "tag=" in to else f";tag={self.name}"
        kind = "Content-Type: application/sdp\r\n" if body else ""
        words = {180: "Ringing", 200: "OK", 202: "Accepted", 486: "Busy Here", 487: "Request Terminated"}.get(status, "No")
        text = f"SIP/2.0 {status} {words}\r\n{copied}To: {to}\r\nContact: <{self.uri}>\r\nAllow: INVITE, ACK, CANCEL, BYE, UPDATE, REFER, NOTIFY, OPTIONS\r\n{kind}Content-Length: {len(body)}\r\n\r\n{body}"
        self.socket.sendto(text.encode(), source)

    def request(self, method, lines="", body="", number=None):
        """Makes a request in the dialog of the last INVITE."""
        of = self.dialog
        target = re.search(r"<(.*?)>", header(of, "Contact"))[1]
        to = header(of, "To")
        to += "" if "tag=" in to else f";tag={self.name}"
        if number is None:
            self.cseq += 1
            number = self.cseq
        kind = "Content-Type: application/sdp\r\n" if body else ""
        return (
            f"{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {self.address}:{self.port};branch=z9hG4bK{self.name}{method}{number};rport\r\nMax-Forwards: 70\r\n"
            f"From: {to}\r\nTo: {header(of, 'From')}\r\nCall-ID: {header(of, 'Call-ID')}\r\nCSeq: {number} {method}\r\nContact: <{self.uri}>\r\n"
            f"{lines}{kind}Content-Length: {len(body)}\r\n\r\n{body}"
        )

    def send(self, text):
        self.socket.sendto(text.encode(), self.source)

    def ask(self, method, lines="", body=""):
        """Sends a request in the dialog and waits for its final answer."""
        text = self.request(method, lines, body)
        self.send(text)
        cseq = header(text, "CSeq")
        final = lambda answer: header(answer, "CSeq") == cseq and int(answer[8:11]) >= 200
        return until(lambda: next(filter(final, list(self.answers)), None), f"an answer to {method}")

    def listen(self):
        while self.open:
            try:
                self.heard += len(self.rtp.recv(2048)) > 100
            except TimeoutError:
                continue

    def speak(self):
        sequence, due = 0, time.monotonic()
        while self.open:
            due += 0.02
            time.sleep(max(0, due - time.monotonic()))
            if self.to and self.speaks:
                head = struct.pack("!BBHII", 0x80, 0, sequence % 65536, sequence * 160 % 2**32, self.port)
                self.rtp.sendto(head + b"\x9e\xa1\x1e\x21" * 40, self.to)
            sequence += 1

    def close(self):
        self.open = False
        for thread in self.threads:
            thread.join()
        for each in (self.socket, self.rtp):
            each.close()


def headers(text):
    head = text.split("\r\n\r\n", 1)[0].split("\r\n")[1:]
    return [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in head)]


def header(text, name):
    return next((value for found, value in headers(text) if found.lower() == name.lower()), "")


def opposite(body):
    """Direction of the answer to an SDP (RFC 3264 §6.1)."""
    found = re.search(r"a=(sendrecv|sendonly|recvonly|inactive)", body or "")
    return {"sendonly": "recvonly", "recvonly": "sendonly", "inactive": "inactive"}.get(found and found[1], "sendrecv")
