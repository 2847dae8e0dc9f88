"""Asterisk in its folder and its network namespace, and its manager interface."""
import itertools
import pathlib
import shutil
import socket
import subprocess
import threading

from daemon import PATIENCE, PBX, check, until


class Asterisk:
    """Asterisk in its folder and namespace, with a configuration of its own there."""

    HOME = "/interop"

    def __init__(self, root, namespace):
        self.root, self.namespace, self.process = pathlib.Path(root), namespace, None
        self.home = self.root / self.HOME.strip("/")
        shutil.rmtree(self.home, ignore_errors=True)
        for folder in ("etc", "run", "log", "spool", "db", "keys"):
            (self.home / folder).mkdir(parents=True)
        # The manager interface describes itself in files that Asterisk looks for in its data folder.
        shares = {"astmoddir": "/usr/lib/x86_64-linux-gnu/asterisk/modules", "astdatadir": "/usr/share/asterisk"}
        own = {"astetcdir": "etc", "astvarlibdir": "db", "astdbdir": "db", "astkeydir": "keys", "astspooldir": "spool", "astrundir": "run", "astlogdir": "log"}
        found = list(self.root.glob("usr/lib/*/asterisk/modules"))
        shares["astmoddir"] = "/" + str(found[0].relative_to(self.root))
        folders = shares | {name: f"{self.HOME}/{folder}" for name, folder in own.items()}
        self.write("asterisk.conf", "[directories]\n" + "".join(f"{name} => {folder}\n" for name, folder in folders.items()))
        self.write("modules.conf", "[modules]\nautoload=yes\nnoload => chan_iax2.so\nnoload => chan_unistim.so\n")
        self.write("logger.conf", "[logfiles]\nmessages => notice,warning,error,verbose(3)\n")
        self.write("features.conf", "[featuremap]\natxfer => *2\n")
        self.write("rtp.conf", "[general]\nrtpstart=20000\nrtpend=20999\n")
        manager = f"[general]\nenabled=yes\nbindaddr={PBX}\nport=5038\n[flows]\nsecret=flows\nread=all\nwrite=all\n"
        self.write("manager.conf", manager)

    def write(self, name, text):
        (self.home / "etc" / name).write_text(text)

    def inside(self, *command):
        return ["ip", "netns", "exec", self.namespace, "chroot", str(self.root), *command]

    def start(self):
        self.process = subprocess.Popen(
            self.inside("asterisk", "-f", "-C", f"{self.HOME}/etc/asterisk.conf"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: "has been up" in self.ask("core waitfullybooted", fails=True) or "fully booted" in self.ask("core waitfullybooted", fails=True), "Asterisk starts", 60)
        self.manager = Manager()

    def ask(self, command, fails=False):
        ran = subprocess.run(
            self.inside("asterisk", "-C", f"{self.HOME}/etc/asterisk.conf", "-rx", command), capture_output=True, text=True
        )
        check(fails or ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}")
        return ran.stdout + ran.stderr

    def kill(self):
        """Ends it as a power cut does. The process is Asterisk itself: `ip` and `chroot` have become it."""
        self.process.kill()
        self.process.wait()
        self.process = None
        self.manager.close()

    def alive(self, channel):
        """Returns whether a channel is up, by the number that it was made with."""
        return any(line.rsplit("!", 1)[-1] == channel for line in self.ask("core show channels concise").splitlines())

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
            self.manager.close()


class Manager:
    """Asterisk's manager interface."""

    def __init__(self):
        self.socket = until(self.connect, "the manager interface")
        self.numbers, self.answers, self.events = itertools.count(1), {}, []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.order("Login", Username="flows", Secret="flows")

    @staticmethod
    def connect():
        try:
            return socket.create_connection((PBX, 5038), 2)
        except OSError:
            return None

    def read(self):
        self.socket.settimeout(None)
        rest = b""
        try:
            while data := self.socket.recv(65536):
                *blocks, rest = (rest + data).split(b"\r\n\r\n")
                for block in blocks:
                    lines = (line.partition(": ") for line in block.decode(errors="replace").split("\r\n"))
                    message = {name: value for name, _, value in lines}
                    number = message.get("ActionID")
                    if "Response" in message and number:
                        self.answers[number] = message
                    else:
                        self.events.append(message)
        except OSError:
            pass

    def order(self, action, **fields):
        number = str(next(self.numbers))
        lines = {"Action": action, "ActionID": number} | fields
        self.socket.sendall("".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode() + b"\r\n")
        answer = until(lambda: self.answers.get(number), f"an answer to {action}")
        check(answer["Response"] in ("Success", "Goodbye"), f"{lines}: {answer}")
        return answer

    def event(self, kind, patience=PATIENCE, **fields):
        """Waits for an event with these fields."""
        fits = lambda event: event.get("Event") == kind and all(event.get(name) == value for name, value in fields.items())
        return until(lambda: next(filter(fits, list(self.events)), None), f"{kind} {fields}", patience)

    def close(self):
        self.socket.close()
