#!/usr/bin/python3
"""The service of streams, with clients, kernels and devices that misbehave, over POCL's and emulated devices.

test_service.py RESEAT KERNELS, with the folders of the modules in PYTHONPATH
"""
import mmap
import multiprocessing
import os
import signal
import socket
import struct
import ssl
import subprocess
import sys
import time
import unittest

from lab import TIMES, Lab
from world import CONSTANT, KEY_BYTES, MASK, SECONDS, Authority, Flow, Service, numbers, scramble, wait_for

RESEAT, KERNELS = sys.argv[1:3]
del sys.argv[1:3]
OPEN, OPENED, REFUSED, RECORDS, ANSWERS, FINISHED, LIST, LISTED = range(1, 9)
DESCRIPTION = 'kernel = "own"; input = 8; output = 8;'


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(value)) + value


def open_body(kernel="scramble", shared=False, source="", constants=(("key", KEY_BYTES),), device="",
              description=DESCRIPTION):
    body = struct.pack("<II", 1, int(shared)) + text(kernel)
    body += text(description if source else "") + text(source) + text(device)
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

    def __init__(self, service, credentials=None, **how):
        if credentials:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(credentials)
            context.load_cert_chain(credentials)
            host, port = service.remote[4:].split(":")
            self.socket = context.wrap_socket(socket.create_connection((host, int(port))), server_hostname="streams")
            self.socket.settimeout(SECONDS)
            assert self.socket.recv(1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(SECONDS)
            self.socket.connect(service.path)
        self.area = None
        try:
            if how:
                self.open(**how)
        except BaseException:
            self.socket.close()
            raise

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


def in_another_process(what):
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    process = fork.Process(target=lambda: answers.put(what()))
    process.start()
    process.join(SECONDS)
    return answers.get()


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
        cls.service = Service(cls.lab, kernels=[KERNELS])

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

    def test_records_after_the_last(self):
        """None of them is answered; those before are."""
        with Client(self.service, shared=False) as client:
            client.socket.sendall(frame(RECORDS, numbers(0, 50)) + frame(FINISHED) + frame(RECORDS, numbers(50, 50)))
            got, kind = b"", ANSWERS
            try:
                while kind == ANSWERS:
                    kind, body = client.frame()
                    got += body
            except Refused as refused:
                self.assertIn("then FINISHED", str(refused))
            except (ConnectionError, EOFError) as ended:
                self.fail(f"neither FINISHED nor REFUSED came: {ended!r}")
            self.assertEqual(got, scramble(numbers(0, 50))[:len(got)])

    def test_descriptions_that_are_not_understood(self):
        source = "__kernel void own(__global ulong *in, __global ulong *out) { }"
        for description in ('kernel = "own"; input = -8; output = 8;', 'kernel = "own"; input = 4294967304L; output = 8;',
                            'kernel = "own"; input = 8; output = 1048577;', 'kernel = "../own"; input = 8; output = 8;',
                            DESCRIPTION + "items = 65537;", DESCRIPTION + "items = 4; local = 3;",
                            DESCRIPTION + 'options = "' + 600 * "w" + '";', DESCRIPTION + "a = " + 50000 * "(",
                            DESCRIPTION + '@include "/etc/passwd"', DESCRIPTION + "input = 9;",
                            DESCRIPTION + "constants = (" + 9 * '{ name = "c"; bytes = 1; }, ' + ");",
                            DESCRIPTION + 'constants = ( { name = "c"; bytes = -1; } );',
                            DESCRIPTION + 'constants = ( { name = "c"; bytes = 1048577; } );'):
            with self.subTest(description=description[:80]):
                error, reason = self.refused(kernel="own", source=source, description=description, constants=())
                self.assertEqual(error, -22)
                self.assertNotIn("root", reason)

    def test_descriptors_that_a_client_sends_are_dropped(self):
        with Client(self.service, shared=True) as client:
            [stream] = self.service.list()["streams"]
            before = len(os.listdir(f"/proc/{stream['pid']}/fd"))
            worker = self.service.worker(client.program)
            theirs = len(os.listdir(f"/proc/{worker}/fd"))
            for _ in range(20):
                socket.send_fds(client.socket, [b"!"], [client.socket.fileno()] * 200)
            client.area[4096:4096 + 24] = numbers(0, 3)
            client.word(128, 3)
            wait_for(lambda: client.word(256) == 3)
            self.assertEqual(len(os.listdir(f"/proc/{stream['pid']}/fd")), before)
            self.assertLess(len(os.listdir(f"/proc/{worker}/fd")), theirs + 50)

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

    def best(self, change=None, **how):
        """The best payloads with which a new stream begins; then the client changes them."""
        with Client(self.service, shared=True, **how) as client:
            best = struct.unpack_from("<5I", client.area, 88)
            if change:
                struct.pack_into("<5I", client.area, 88, *change)
        wait_for(lambda: not self.service.list()["streams"])
        return best

    def test_a_stream_begins_as_the_last_of_its_kernel_ended(self):
        first = (1024, 2048, 4096, 2048, 1024)
        self.best(first)
        self.assertEqual(self.best((0xFFFFFFFF, 1, 0xFFFFFFFF, 1, 1)), first)
        within = self.best((4096, 0, 4096, 4096, 4096))
        self.assertEqual((within[1], *within[3:]), (512, 512, 512), "4 KiB at least")
        self.assertLess(within[0], 1 << 21, "a client does not decide what rings there are")
        other = {"kernel": "own", "source": "__kernel void own(__global ulong *in, __global ulong *out) { }",
                 "constants": ()}
        self.assertEqual(self.best(**other), (0, 0, 0, 0, 0), "those of another kernel")
        # The stream that was told no payload tells none to the next, which another process opens.
        self.assertEqual(in_another_process(self.best), within)

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
            service = Service(lab, kernels=[KERNELS])
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
            service = Service(lab, kernels=[KERNELS])
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
            service = Service(lab, kernels=[KERNELS])
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
        cls.authority = Authority(cls.lab)
        cls.laptop = cls.authority.issue("laptop")
        cls.phone = cls.authority.issue("phone", "--sessions", "1", "--devices", cls.devices[0], "--memory", "64MiB")
        cls.service = Service(cls.lab, kernels=[KERNELS], authority=cls.authority)

    @classmethod
    def tearDownClass(cls):
        cls.service.kill()

    def run_as(self, credentials, *options, kernel="scramble", records=b""):
        """What a client gets, and what it is told."""
        options = options or CONSTANT
        return self.service.run(kernel, records, *options, env=self.service.stranger(credentials))[1:]

    def flow(self, credentials, *options):
        """Records of a client with a certificate that flow until flow.finish()."""
        return Flow(self.service, *options, env=self.service.stranger(credentials))

    def test_records_flow_through_tls(self):
        records = numbers(3, 300000)
        self.assertEqual(self.run_as(self.laptop, records=records), (scramble(records), ""))

    def own(self, source, options=""):
        """What a client is told of a kernel of its own."""
        folder = self.lab.path("own")
        os.makedirs(folder, exist_ok=True)
        for name, content in ((".cl", source), (".stream", f'{DESCRIPTION}options = "{options}";')):
            with open(f"{folder}/own{name}", "w", encoding="utf-8") as file:
                file.write(content)
        return self.run_as(self.laptop, "--address", self.service.remote, kernel=folder + "/own")[1]

    def test_kernels_of_strangers_include_no_files(self):
        """The files would be read as the service's user, and what is in them told in the compiler's log."""
        secret = self.lab.path("secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write("a_secret_word;\n")
        kernel = "__kernel void own(__global uchar *in, __global uchar *out) { out[0] = in[0]; }\n"
        for head in (f'#include "{secret}"\n', f'%:include "{secret}"\n', f'#in\\\nclude "{secret}"\n',
                     f'??=import "{secret}"\n'):
            with self.subTest(head=head):
                said = self.own(head + kernel)
                self.assertNotIn("a_secret_word", said)
                self.assertIn("must not include files", said)
        for options in (f"-include {secret}", f"-in\\x63lude {secret}", f"-imacros {secret}", "-I/etc", f"-D X -I {secret}",
                        f"-cl-mad-enable @{secret}"):
            with self.subTest(options=options):
                said = self.own(kernel, options)
                self.assertNotIn("a_secret_word", said)
                self.assertIn("-cl-..., -DNAME=VALUE", said)
        self.assertEqual(self.own(kernel, "-cl-mad-enable -DN=3 -w"), "")

    def test_a_client_without_certificate(self):
        self.assertIn("nothing.pem", self.run_as(self.lab.path("nothing.pem"))[1])

    def test_what_a_certificate_grants(self):
        first = self.flow(self.phone)
        first.more(100)
        [app] = self.service.programs().values()
        with open(f"/proc/{app['pid']}/environ", "rb") as file:
            environment = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
        self.assertTrue(environment[b"RESEAT_ISOLATED_DRIVER"])
        self.assertIn("1 at a time", self.run_as(self.phone)[1])
        first.end(self)
        wait_for(lambda: not self.service.list()["streams"])
        self.assertIn("does not grant", self.run_as(self.phone, *CONSTANT, "--device", self.devices[1])[1])

    def test_the_policy_keeps_a_stream_on_what_its_certificate_grants(self):
        """Its device drains: the stream of a client of the house goes elsewhere, and a stranger's waits, or stays."""
        granted = self.devices[1]
        tied = self.authority.issue("tied", "--devices", granted)
        wait_for(lambda: not self.service.list()["streams"])
        stranger, house = self.flow(tied), Flow(self.service, "--device", granted)
        try:
            stranger.more(100)
            house.more(100)
            self.assertEqual(self.at(False), granted)
            self.lab.control("drain", granted)
            wait_for(lambda: self.at(True) not in (None, granted))
            time.sleep(1)
            self.assertIn(self.at(False), (None, granted))
            os.kill(self.program(False)["pid"], signal.SIGKILL)  # The next worker begins where it may, too.
            time.sleep(1)
            self.assertIn(self.at(False), (None, granted))
        finally:
            self.lab.control("drain", granted, "--off")
        stranger.more(100)
        self.assertEqual(self.at(False), granted)
        stranger.end(self)
        house.end(self)

    def program(self, shared):
        """What `reseat ps` says of the only stream of a local client, or of a stranger; {}: it is started again."""
        [name] = [stream["program"] for stream in self.service.list()["streams"] if stream["shared"] == shared]
        return self.service.programs().get(name, {})

    def at(self, shared):
        return self.program(shared).get("device")

    def test_a_certificate_that_is_revoked_ends_its_streams(self):
        lost = self.flow(self.authority.issue("lost"))
        lost.more(100)
        kept = self.flow(self.laptop)
        kept.more(100)
        self.authority.run("--revoke", "lost")
        wait_for(lambda: lost.process.poll() is not None, 20)
        status, said = lost.finish()
        self.assertEqual((status, lost.wrong), (1, 0))
        self.assertIn("your certificate was revoked", said)
        kept.more()
        kept.end(self)

    def test_what_strangers_may_take_together(self):
        """Of four streams, one is kept for the service's user, and a certificate without a limit gets one."""
        with Lab(["pocl"], RESEAT) as lab:
            lab.devices()
            authority = Authority(lab)
            service = Service(lab, "--streams", "4", kernels=[KERNELS], authority=authority)
            names = [authority.issue(f"c{i}") for i in range(3)]
            many = authority.issue("many", "--sessions", "9")
            flows = [Flow(service, env=service.stranger(name)) for name in names]
            for flow in flows:
                flow.more(100)
            told = service.run("scramble", b"", *CONSTANT, env=service.stranger(names[0]))[2]
            self.assertIn("of your certificate is 1 at a time", told)
            told = service.run("scramble", b"", *CONSTANT, env=service.stranger(many))[2]
            self.assertIn("all 3 streams for clients with certificates", told)
            flows.append(Flow(service))
            flows[-1].more(100)
            self.assertIn("all 4 streams are open", service.run("scramble", b"", *CONSTANT)[2])
            self.assertEqual(len(service.list()["streams"]), 4)
            for flow in flows:
                flow.end(self)
            service.kill()

    def test_a_stranger_that_stops_in_a_frame(self):
        """It is dropped; one that waits between frames is not."""
        with Lab(["pocl"], RESEAT) as lab:
            lab.devices()
            authority = Authority(lab)
            service = Service(lab, "--patience", "2", kernels=[KERNELS], authority=authority)
            credentials = authority.issue("slow")
            for part in struct.pack("<IHH", 16, RECORDS, 0) + b"half", b"abc":
                with self.subTest(part=part), Client(service, credentials=credentials, shared=False) as slow:
                    self.assertEqual(slow.exchange(numbers(0, 9)), scramble(numbers(0, 9)))
                    time.sleep(3)
                    self.assertEqual(slow.exchange(numbers(9, 9)), scramble(numbers(9, 9)))
                    slow.socket.sendall(part)
                    with self.assertRaises((EOFError, Refused)):
                        slow.frame()
            service.kill()


class Started(unittest.TestCase):
    def test_a_kernel_that_takes_too_long_to_build(self):
        source = "#define A x = x * 3 + y; y ^= x;\n" + "".join(
            f"#define {to} {' '.join(10 * what)}\n" for what, to in zip("ABCDE", "BCDEF"))
        source += "__kernel void own(__global ulong *in, __global ulong *out)" \
                  "{ ulong x = in[0], y = 1; F out[0] = x; }"
        with Lab(["pocl"], RESEAT) as lab:
            lab.devices()
            service = Service(lab, "--ready", "3", kernels=[KERNELS])
            error, reason = own(self, service, source)
            self.assertEqual(error, -110)
            self.assertIn("within 3 s", reason)
            wait_for(lambda: not service.programs())
            service.kill()

    def test_the_service_is_started_for_a_client(self):
        """As the agent is; of several clients at once, by one of them. It serves all, and `stream list` finds it."""
        with Lab(["pocl"], RESEAT) as lab:
            lab.env["RESEAT_STREAM"] = "unix:" + lab.path("run") + "/reseat/stream.sock"
            lab.devices()
            records = numbers(0, 1000)
            command = [RESEAT, "stream", "run", KERNELS + "/scramble", *CONSTANT]
            clients = [subprocess.Popen(command, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE) for _ in range(3)]
            self.assertEqual([client.communicate(records, SECONDS) for client in clients],
                             [(scramble(records), b"")] * 3)
            _, answer = lab.control("stream", "list", "--json")
            self.assertIn("aes", [kernel["name"] for kernel in answer["kernels"]])
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(lab.env["RESEAT_STREAM"][5:])
                pid = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"))

    def test_a_service_ends_when_nobody_uses_it(self):
        with Lab(["pocl"], RESEAT) as lab:
            lab.devices()
            service = Service(lab, "--linger", "1", kernels=[KERNELS])
            self.assertEqual(service.run("scramble", numbers(0, 9), *CONSTANT), (0, scramble(numbers(0, 9)), ""))
            self.assertEqual(service.process.wait(SECONDS), 0)
            service.process.stdout.close()


if __name__ == "__main__":
    # A worker that its kernel crashes ends as without AddressSanitizer.
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    unittest.main(verbosity=2)
