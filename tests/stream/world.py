"""What the tests of streams share: a service in a world of its own (tests/chaos/lab.py), certificates, and records that
flow through `reseat stream run` while each answer is compared."""
import contextlib
import signal
import socket
import struct
import subprocess
import threading
import time

KEY = 0x0123456789ABCDEF
KEY_BYTES = struct.pack("<Q", KEY)
CONSTANT = ["--constant", "key=" + KEY_BYTES.hex()]
MASK = (1 << 64) - 1
SECONDS = 120


def scramble(records):
    """What the kernel of tests/stream/kernels makes of records, computed here."""
    answers = bytearray()
    for (x,) in struct.iter_unpack("<Q", records):
        x = (x ^ KEY) * 0x9E3779B97F4A7C15 & MASK
        answers += struct.pack("<Q", x ^ x >> 29)
    return bytes(answers)


def numbers(first, count):
    return struct.pack(f"<{count}Q", *range(first, first + count))


def wait_for(what, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > end:
            raise AssertionError("it did not come to that")
        time.sleep(0.02)
    return found


def free_port():
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return port.getsockname()[1]


class Authority:
    """A private authority for clients and services on 127.0.0.1."""

    def __init__(self, lab):
        self.lab, self.folder = lab, lab.path("ca")
        self.run("--init-ca", "--name", "streams")

    def run(self, *options):
        subprocess.run([self.lab.reseat, "serve", "--ca", self.folder, *options], check=True, env=self.lab.env,
                       stdout=subprocess.DEVNULL)

    def issue(self, name, *options):
        """The file of the credentials of a new client."""
        file = self.lab.path(name + ".pem")
        self.run("--issue", name, *options, "--out", file)
        return file


class Service:
    """`reseat stream serve`, where the user's programs look for it, and with an authority at a port as well."""

    def __init__(self, lab, *options, kernels=(), authority=None):
        self.lab, self.process = lab, None
        self.path = lab.path("run") + "/stream.sock"
        self.address = "unix:" + self.path
        self.remote = authority and f"tcp:127.0.0.1:{free_port()}"
        lab.env["RESEAT_STREAM"] = self.address
        self.command = [lab.reseat, "stream", "serve", *options]
        for folder in kernels:
            self.command += ["--kernels", folder]
        if authority:
            self.command += ["--ca", authority.folder, self.address, self.remote]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.lab.env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("listening")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def list(self):
        _, answer = self.lab.control("stream", "list", self.address, "--json")
        return answer

    def programs(self):
        """Streams' workers, by name: what `reseat ps` says of them."""
        _, answer = self.lab.control("ps", "--json")
        return {app["name"]: app for app in (answer or {}).get("apps", []) if app["name"].startswith("stream-")}

    def worker(self, program):
        """The process of a stream's worker, once it runs."""
        return wait_for(lambda: self.programs().get(program, {}).get("pid"))

    def stranger(self, credentials):
        """The environment of a client that comes through TLS."""
        return dict(self.lab.env, RESEAT_CREDENTIALS=credentials, RESEAT_STREAM=self.remote)

    def run(self, kernel, records, *options, env=None):
        """`reseat stream run`: its status, answers and errors."""
        done = subprocess.run([self.lab.reseat, "stream", "run", kernel, *options], env=env or self.lab.env,
                              input=records, capture_output=True, timeout=SECONDS, check=False)
        return done.returncode, done.stdout, done.stderr.decode()


class Flow:
    """Records that flow through `reseat stream run`, each answer compared, until it is stopped."""

    BATCH = 4096

    def __init__(self, service, *options, env=None):
        self.process = subprocess.Popen([service.lab.reseat, "stream", "run", "scramble", *CONSTANT, *options],
                                        env=env or service.lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.over, self.sent, self.answered, self.wrong = False, 0, 0, 0
        self.threads = [threading.Thread(target=self.send, daemon=True),
                        threading.Thread(target=self.compare, daemon=True)]
        for thread in self.threads:
            thread.start()

    def send(self):
        try:
            while not self.over:
                self.process.stdin.write(numbers(self.sent, self.BATCH))
                self.sent += self.BATCH
        except BrokenPipeError:  # It has failed: its status says so.
            pass
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def compare(self):
        while got := self.process.stdout.read(8 * self.BATCH):
            self.wrong += got != scramble(numbers(self.answered, len(got) // 8))
            self.answered += len(got) // 8

    def more(self, count=50000):
        before = self.answered
        wait_for(lambda: self.answered >= before + count)

    def finish(self):
        """Its status and what it said, once it has ended."""
        self.over = True
        for thread in self.threads:
            thread.join()
        said = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.wait(), said

    def end(self, test):
        test.assertEqual(self.finish(), (0, ""))
        test.assertEqual((self.answered, self.wrong), (self.sent, 0))


class Jvm:
    """A case of clients/Clients.java under way."""

    def __init__(self, classes, env, case, count=1000, **properties):
        self.process = subprocess.Popen(
            ["java", "-Xmx32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
             *(f"-D{k}={v}" for k, v in properties.items()), "-cp", classes, "Clients", case, str(count)],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.lines, self.done, self.program = [], 0, None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("done "):
                self.done = int(line.split()[1])
            else:
                self.lines.append(line.rstrip("\n"))
                if line.startswith("program "):
                    self.program = line.split()[1]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            pipe.close()

    def more(self, test):
        """Wait until it has done something since."""
        done = self.done
        wait_for(lambda: self.done > done or self.process.poll() is not None)
        if self.done == done:
            self.end(test)

    def end(self, test, seconds=SECONDS):
        """End its input, and wait until it has ended well. Returns what it printed before "ok"."""
        self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)  # Its threads' stacks.
            time.sleep(1)
            self.process.kill()
        self.reader.join()
        test.assertEqual(self.process.stderr.read(), "")
        test.assertEqual(self.process.wait(), 0, self.lines)
        test.assertEqual(self.lines[-1], "ok")
        return "\n".join(self.lines[:-1])
