#!/usr/bin/python3
"""The service of streams, with clients, kernels and devices that misbehave, over POCL's and emulated devices.

test_service.py RESEAT SERVE KERNELS, with the folders of the modules in PYTHONPATH
"""
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

from lab import TIMES, Lab

RESEAT, SERVE, KERNELS = sys.argv[1:4]
del sys.argv[1:4]
KEY = 0x0123456789ABCDEF
KEY_BYTES = struct.pack("<Q", KEY)
CONSTANT = ["--constant", "key=" + KEY_BYTES.hex()]
MASK = (1 << 64) - 1
SECONDS = 120
OPEN, OPENED, REFUSED, RECORDS, ANSWERS, FINISHED, LIST, LISTED = range(1, 9)
DESCRIPTION = 'kernel = "own"; input = 8; output = 8;'


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


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(value)) + value


def open_body(kernel="scramble", shared=False, source="", constants=(("key", KEY_BYTES),), device=""):
    body = struct.pack("<II", 1, int(shared)) + text(kernel)
    body += text(DESCRIPTION if source else "") + text(source) + text(device)
    body += struct.pack("<I", len(constants))
    for name, value in constants:
        body += text(name) + text(value)
    return body


def frame(kind, body=b""):
    return struct.pack("<IHH", len(body), kind, 0) + body


class Refused(Exception):
    pass


class Client:
    """A client that speaks frames itself."""

    def __init__(self, service, **how):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(service.path)
        self.area = None
        if how:
            self.open(**how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        if self.area:
            self.area.close()

    def receive(self, size):
        got = b""
        while len(got) < size:
            more = self.socket.recv(size - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def frame(self):
        size, kind, _ = struct.unpack("<IHH", self.receive(8))
        body = self.receive(size)
        if kind == REFUSED:
            error, length = struct.unpack_from("<iI", body)
            raise Refused(error, body[8:8 + length].decode())
        return kind, body

    def open(self, **how):
        self.socket.sendall(frame(OPEN, open_body(**how)))
        kind, body = self.frame()
        assert kind == OPENED
        _, self.input, self.output, self.capacity, size, length = struct.unpack_from("<IIIQQI", body)
        path = body[32:32 + length].decode()
        self.program = body[36 + length:].decode()
        if path:
            fd = os.open(path, os.O_RDWR)
            self.area = mmap.mmap(fd, size)
            os.close(fd)

    def exchange(self, records):
        """Send records, and receive as many answers."""
        self.socket.sendall(frame(RECORDS, records))
        answers = b""
        while len(answers) < len(records) // self.input * self.output:
            kind, body = self.frame()
            assert kind == ANSWERS
            answers += body
        return answers

    def word(self, at, value=None):
        if value is None:
            return struct.unpack_from("<Q", self.area, at)[0]
        struct.pack_into("<Q", self.area, at, value)
        self.socket.send(b"!")
        return value

    def failure(self):
        """What a shared stream has failed of."""
        wait_for(lambda: struct.unpack_from("<I", self.area, 48)[0])
        error, length = struct.unpack_from("<II", self.area, 48)
        return error, self.area[1024:1024 + length].decode()


class Service:
    def __init__(self, lab, *options):
        self.lab, self.options, self.process = lab, options, None
        self.path = lab.path("run") + "/stream.sock"
        lab.env["RESEAT_STREAM"] = "unix:" + self.path
        self.start()

    def start(self):
        self.process = subprocess.Popen([RESEAT, "stream", "serve", "--kernels", KERNELS, *self.options],
                                        env=self.lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        text=True)
        assert self.process.stdout.readline().startswith("listening")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def list(self):
        _, answer = self.lab.control("stream", "list", "--json")
        return answer

    def worker(self, program):
        """The process of a stream's worker, once it runs."""
        def find():
            _, answer = self.lab.control("ps", "--json")
            return next((app["pid"] for app in (answer or {}).get("apps", []) if app["name"] == program), None)
        return wait_for(find)

    def run(self, kernel, records, *options):
        """`reseat stream run`: its status, answers and errors."""
        done = subprocess.run([RESEAT, "stream", "run", kernel, *options], env=self.lab.env, input=records,
                              capture_output=True, timeout=SECONDS, check=False)
        return done.returncode, done.stdout, done.stderr.decode()


class Flow:
    """Records that flow through `reseat stream run`, each answer compared, until it is stopped."""

    BATCH = 4096

    def __init__(self, service, *options):
        self.process = subprocess.Popen([RESEAT, "stream", "run", "scramble", *CONSTANT, *options],
                                        env=service.lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.over, self.answered, self.wrong = False, 0, 0
        self.threads = [threading.Thread(target=self.send), threading.Thread(target=self.compare)]
        for thread in self.threads:
            thread.start()

    def send(self):
        first = 0
        try:
            while not self.over:
                self.process.stdin.write(numbers(first, self.BATCH))
                first += self.BATCH
            self.process.stdin.close()
        except BrokenPipeError: # It has failed: its status says so.
            pass
        self.sent = first

    def compare(self):
        while got := self.process.stdout.read(8 * self.BATCH):
            self.wrong += got != scramble(numbers(self.answered, len(got) // 8))
            self.answered += len(got) // 8

    def more(self, count=50000):
        before = self.answered
        wait_for(lambda: self.answered >= before + count)

    def end(self, test):
        self.over = True
        for thread in self.threads:
            thread.join()
        self.process.stdout.close()
        test.assertEqual(self.process.wait(), 0)
        test.assertEqual((self.answered, self.wrong), (self.sent, 0))


def own(case, service, source, records=numbers(0, 100)):
    """The reason why a kernel of the client's own fails."""
    with case.assertRaises(Refused) as caught, \
            Client(service, kernel="own", source=source, constants=()) as client:
        client.exchange(records)
    return caught.exception.args


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(Lab(["pocl"], RESEAT))
        cls.devices = cls.lab.devices()
        cls.service = Service(cls.lab)

    @classmethod
    def tearDownClass(cls):
        cls.service.kill()

    def tearDown(self):
        """No stream is left of a client that has gone, and the service still serves."""
        wait_for(lambda: not self.service.list()["streams"])
        with Client(self.service, shared=False) as client:
            self.assertEqual(client.exchange(numbers(0, 3)), scramble(numbers(0, 3)))

    def refused(self, **how):
        with self.assertRaises(Refused) as caught, Client(self.service, **how):
            pass
        return caught.exception.args

    def test_records_flow(self):
        records = numbers(7, 100000)
        self.assertEqual(self.service.run("scramble", records, *CONSTANT), (0, scramble(records), ""))
        self.assertEqual(self.service.run(KERNELS + "/scramble", records, *CONSTANT),
                         (0, scramble(records), ""))

    def test_input_ends_in_a_record(self):
        status, answers, said = self.service.run("scramble", numbers(0, 3) + b"half", *CONSTANT)
        self.assertEqual((status, answers), (1, scramble(numbers(0, 3))))
        self.assertIn("4 bytes into a record of 8", said)

    def test_records_flow_through_the_socket(self):
        with Client(self.service, shared=False) as client:
            for first in range(0, 300000, 100000):
                self.assertEqual(client.exchange(numbers(first, 100000)), scramble(numbers(first, 100000)))
            client.socket.sendall(frame(RECORDS, numbers(0, 50)) + frame(FINISHED))
            got = b""
            while (answer := client.frame())[0] == ANSWERS:
                got += answer[1]
            self.assertEqual((answer[0], got), (FINISHED, scramble(numbers(0, 50))))

    def test_list(self):
        with Client(self.service, shared=False) as client:
            client.exchange(numbers(0, 1000))
            answer = self.service.list()
            [stream] = answer["streams"]
            self.assertEqual((stream["program"], stream["sent"], stream["answered"], stream["taken"]),
                             (client.program, 1000, 1000, 1000))
            self.assertEqual(stream["kernel"], "scramble")
            kernel = next(kernel for kernel in answer["kernels"] if kernel["name"] == "scramble")
            self.assertEqual((kernel["input"], kernel["output"], kernel["constants"]),
                             (8, 8, [{"name": "key", "bytes": 8}]))

    def test_opening_is_refused(self):
        self.assertIn('no kernel "missing"', self.refused(kernel="missing")[1])
        self.assertIn("not the name", self.refused(kernel="../scramble")[1])
        self.assertIn("has 3 bytes, not 8", self.refused(constants=(("key", b"abc"),))[1])
        self.assertIn('the constant "key"', self.refused(constants=())[1])

    def test_a_kernel_that_does_not_build(self):
        error, reason = own(self, self.service, "__kernel void own(__global ulong *in) { nonsense }")
        self.assertEqual(error, -22)
        self.assertIn("does not build", reason)
        self.assertIn("nonsense", reason)
        self.assertIn('no kernel "own"', own(self, self.service, "__kernel void other(__global ulong *in) { }")[1])
        self.assertIn("has 1 arguments", own(self, self.service, "__kernel void own(__global ulong *in) { }")[1])

    def test_a_kernel_that_crashes(self):
        begun = time.monotonic()
        error, reason = own(self, self.service, "__kernel void own(__global ulong *in, __global ulong *out) {"
                                 "*(__global volatile ulong *)(in[get_global_id(0)] + 1) = 1; }")
        self.assertIn("was ended by signal 11", reason)
        self.assertGreater(time.monotonic() - begun, 0.6) # It waited longer and longer.

    def test_frames_that_are_not_understood(self):
        for rubbish in (b"GET / HTTP/1.1\r\n\r\n", frame(RECORDS, numbers(0, 1)), frame(OPEN, b"short"),
                        struct.pack("<IHH", 1 << 30, OPEN, 0)):
            with self.subTest(rubbish=rubbish), Client(self.service) as client:
                client.socket.sendall(rubbish)
                with self.assertRaises(Refused):
                    client.frame()

    def test_records_that_are_not_understood(self):
        for rubbish in (frame(RECORDS, b"half"), struct.pack("<IHH", 1 << 30, RECORDS, 0), frame(OPEN, b"")):
            with self.subTest(rubbish=rubbish), Client(self.service, shared=False) as client:
                client.exchange(numbers(0, 10))
                client.socket.sendall(rubbish)
                with self.assertRaisesRegex(Refused, "whole records of 8 bytes"):
                    client.frame()

    def test_a_client_that_vanishes_in_a_record(self):
        with Client(self.service, shared=False) as client:
            worker = self.service.worker(client.program)
            client.socket.sendall(struct.pack("<IHH", 16, RECORDS, 0) + b"only a part"[:10])
        wait_for(lambda: not os.path.exists(f"/proc/{worker}"))

    def test_a_client_that_stalls(self):
        """It takes no answers: its own stream stands still, others flow."""
        with Client(self.service, shared=False) as stalled:
            stalled.socket.settimeout(0.5)
            with self.assertRaises(TimeoutError):
                for first in range(1000):
                    stalled.socket.sendall(frame(RECORDS, numbers(first, 100000)))
            records = numbers(1, 100000)
            self.assertEqual(self.service.run("scramble", records, *CONSTANT), (0, scramble(records), ""))

    def test_counters_that_cannot_be(self):
        for at, value in ((128, 1 << 40), (128, 2), (384, 4), (384, MASK)):
            with self.subTest(at=at, value=value), Client(self.service, shared=True) as client:
                client.area[4096:4096 + 24] = numbers(0, 3)
                client.word(128, 3)
                wait_for(lambda: client.word(256) == 3)
                client.word(at, value)
                error, reason = client.failure()
                self.assertEqual(error, 71)
                self.assertIn("counter", reason)

    def test_a_size_in_the_area_is_not_believed(self):
        with Client(self.service, shared=True) as client:
            client.area[8:40] = b"\xff" * 32
            client.area[4096:4096 + 24] = numbers(0, 3)
            client.word(128, 3)
            wait_for(lambda: client.word(256) == 3)

    def test_a_worker_is_killed(self):
        flow = Flow(self.service)
        for _ in range(4):
            flow.more()
            [stream] = self.service.list()["streams"]
            os.kill(self.service.worker(stream["program"]), signal.SIGKILL)
        flow.more()
        flow.end(self)

    def test_a_worker_is_killed_before_it_answers(self):
        with Client(self.service, shared=True) as client:
            worker = self.service.worker(client.program)
            os.kill(worker, signal.SIGSTOP)
            client.area[4096:4096 + 24] = numbers(5, 3)
            client.word(128, 3)
            os.kill(worker, signal.SIGKILL)
            wait_for(lambda: client.word(256) == 3, 20)
            output = struct.unpack_from("<Q", client.area, 32)[0]
            self.assertEqual(client.area[output:output + 24], scramble(numbers(5, 3)))

    def test_the_service_is_killed(self):
        flow = Flow(self.service)
        for _ in range(2):
            flow.more()
            self.service.kill()
            self.service.start()
        flow.more()
        flow.end(self)

    def test_a_worker_ends_with_the_service(self):
        with Client(self.service, shared=True) as client:
            worker = self.service.worker(client.program)
            self.service.kill()
            wait_for(lambda: not os.path.exists(f"/proc/{worker}"))
            self.assertEqual(client.socket.recv(1), b"")
        self.service.start()

    def test_a_stream_is_moved(self):
        flow = Flow(self.service)
        flow.more()
        [stream] = self.service.list()["streams"]
        for device in self.devices[1:] + self.devices * 2 * TIMES:
            status, _ = self.lab.control("move", stream["program"], device, "--json")
            self.assertIn(status, (0, 4)) # Refused where it is already.
            flow.more()
        flow.end(self)


class Beyond(unittest.TestCase):
    def test_a_kernel_that_writes_beyond(self):
        """Of 32768 records a payload, two at a time in each of two stages, the ring has slots 1 to 131072."""
        source = "__kernel void own(__global ulong *in, __global ulong *out) {" \
                 "size_t i = get_global_id(0); out[i] = in[i]; out[SLOT] = 7; }"
        with Lab(["pocl"], RESEAT, extra_env={"RESEAT_STREAM_PAYLOADS": ",".join(["32768"] * 5)}) as lab:
            lab.devices()
            service = Service(lab)
            for slot in ("0", "131073"):
                self.assertIn("wrote outside its answers", own(self, service, source.replace("SLOT", slot))[1])
            service.kill()


class Overlap(unittest.TestCase):
    """On a device whose launches take their time, with constant payloads."""

    LAUNCH_NS = 40_000_000 # of 1024 records

    def flow(self, payloads, count):
        """What its worker traces: lists of (begin, end, first, records)."""
        stages = {"write": [], "compute": [], "read": []}
        with Lab(["emulated"], RESEAT, extra_env={"RESEAT_STREAM_PAYLOADS": payloads}) as lab:
            with open(lab.path("gpu"), "w", encoding="utf-8") as file:
                file.write(f"[a] base=1 own_memory=yes engines=yes items_per_s={1024 * 10**9 // self.LAUNCH_NS}\n")
            lab.env.update(EMU_CONFIG=lab.path("gpu"), RESEAT_STREAM_TRACE=lab.path("trace"))
            lab.devices()
            service = Service(lab)
            with Client(service, shared=False) as client:
                answers = client.exchange(numbers(0, count))
            service.kill()
            self.assertEqual(answers, scramble(numbers(0, count)))
            with open(lab.path("trace"), encoding="utf-8") as file:
                for stage, *numbers_of in map(str.split, file):
                    stages[stage].append(tuple(map(int, numbers_of)))
        return stages

    def test_a_read_does_not_wait_for_later_launches(self):
        """Four reads take the answers of one launch, the last ones when the next launch is under way."""
        stages = self.flow("1024,1024,1024,256,256", 20000)
        late = 0
        for begin, end, first, records in stages["read"]:
            computed = min(e for _, e, f, n in stages["compute"] if f + n >= first + records)
            late += end - computed > self.LAUNCH_NS / 2
        self.assertLess(late, len(stages["read"]) / 4)

    def test_a_read_waits_for_its_launch(self):
        """Launches are of more records than were written while the device was idle, reads of as many."""
        for payload in "8", "32", "100":
            self.flow(f"{payload},{payload},1024,{payload},{payload}", 5000)


class Lost(unittest.TestCase):
    def lose(self, *options):
        """Each worker's device vanishes after so many calls; another worker makes what was not answered."""
        with Lab(["emulated"], RESEAT) as lab:
            lab.devices()
            lab.env["EMU_FAIL"] = "device=a;call=20;function=clEnqueueNDRangeKernel;error=vanish"
            service = Service(lab)
            flow = Flow(service, *options)
            flow.more()
            [stream] = service.list()["streams"]
            first = service.worker(stream["program"])
            wait_for(lambda: service.worker(stream["program"]) != first)
            flow.more()
            flow.end(self)
            service.kill()

    def test_a_device_that_the_client_chose_is_lost(self):
        self.lose("--device", "gpu0")

    def test_a_device_is_lost(self):
        self.lose()


class Strangers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(Lab(["pocl"], RESEAT))
        cls.devices = cls.lab.devices()
        cls.ca = cls.lab.path("ca")
        cls.authority("--init-ca", "--name", "streams")
        cls.authority("--issue", "laptop", "--out", cls.lab.path("laptop.pem"))
        cls.authority("--issue", "phone", "--sessions", "1", "--devices", cls.devices[0], "--memory", "64MiB",
                      "--out", cls.lab.path("phone.pem"))
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            number = port.getsockname()[1]
        cls.address = f"tcp:127.0.0.1:{number}"
        cls.local = "unix:" + cls.lab.path("run") + "/stream.sock"
        cls.service = subprocess.Popen(
            [RESEAT, "stream", "serve", "--kernels", KERNELS, "--ca", cls.ca, cls.address, cls.local],
            env=cls.lab.env, stdout=subprocess.PIPE, text=True)
        assert cls.service.stdout.readline().startswith("listening")

    @classmethod
    def tearDownClass(cls):
        cls.service.kill()
        cls.service.wait()
        cls.service.stdout.close()

    @classmethod
    def authority(cls, *options):
        subprocess.run([SERVE, "--ca", cls.ca, *options], check=True, stdout=subprocess.DEVNULL, env=cls.lab.env)

    def start(self, credentials, *options):
        env = dict(self.lab.env, RESEAT_CREDENTIALS=self.lab.path(credentials), RESEAT_STREAM=self.address)
        return subprocess.Popen([RESEAT, "stream", "run", "scramble", *CONSTANT, *options], env=env,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_records_flow_through_tls(self):
        records = numbers(3, 300000)
        answers, said = self.start("laptop.pem").communicate(records, SECONDS)
        self.assertEqual((answers, said), (scramble(records), b""))

    def test_kernels_of_strangers_include_no_files(self):
        """The files would be read as the service's user, and what is in them told in the compiler's log."""
        secret, folder = self.lab.path("secret"), self.lab.path("own")
        os.mkdir(folder)
        with open(secret, "w", encoding="utf-8") as file:
            file.write("a_secret_word;\n")
        kernel = "__kernel void own(__global uchar *in, __global uchar *out) { out[0] = in[0]; }\n"
        for head, options in ((f'#include "{secret}"\n', ""), (f'%:include "{secret}"\n', ""),
                              (f'#in\\\nclude "{secret}"\n', ""), (f'??=import "{secret}"\n', ""),
                              ("", f"-include {secret}")):
            with self.subTest(head=head, options=options):
                for name, content in ((".cl", head + kernel), (".stream", f'{DESCRIPTION}options = "{options}";')):
                    with open(f"{folder}/own{name}", "w", encoding="utf-8") as file:
                        file.write(content)
                env = dict(self.lab.env, RESEAT_CREDENTIALS=self.lab.path("laptop.pem"), RESEAT_STREAM=self.address)
                run = subprocess.run([RESEAT, "stream", "run", f"{folder}/own"], env=env, input=b"", check=False,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=SECONDS)
                self.assertNotIn(b"a_secret_word", run.stderr)
                self.assertIn(b"must not include files", run.stderr)

    def test_a_client_without_certificate(self):
        _, said = self.start("nothing.pem").communicate(b"", SECONDS)
        self.assertIn(b"nothing.pem", said)

    def test_what_a_certificate_grants(self):
        first = self.start("phone.pem")
        first.stdin.write(numbers(0, 100))
        first.stdin.flush()
        self.assertEqual(first.stdout.read(800), scramble(numbers(0, 100)))
        _, answer = self.lab.control("ps", "--json")
        [worker] = [app["pid"] for app in answer["apps"] if app["name"].startswith("stream-")]
        with open(f"/proc/{worker}/environ", "rb") as file:
            environment = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
        self.assertTrue(environment[b"RESEAT_ISOLATED_DRIVER"])
        _, said = self.start("phone.pem").communicate(b"", SECONDS)
        self.assertIn(b"1 at a time", said)
        first.stdin.close()
        first.wait()
        first.stdout.close()
        first.stderr.close()
        wait_for(lambda: not self.lab.control("stream", "list", self.local, "--json")[1]["streams"])
        _, said = self.start("phone.pem", "--device", self.devices[1]).communicate(b"", SECONDS)
        self.assertIn(b"does not grant", said)


if __name__ == "__main__":
    # A worker that its kernel crashes ends as without AddressSanitizer.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    unittest.main(verbosity=2)
