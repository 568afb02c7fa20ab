"""Kernels on accelerators for Python: records go in, answers come out, in order and exactly once.

    import reseat_stream

    with reseat_stream.open("aes", key=key) as aes:
        encrypted = aes.run(plain)                  # whole records: bytes, array, NumPy, mmap ...
        for answer in aes.map(records):             # lazily, one record each
            ...

The service is found at $RESEAT_STREAM (unix:PATH or tcp:HOST:PORT), else at reseat/stream.sock in the
user's runtime folder, where `reseat stream serve` listens. When it is started again, a stream goes on.
"""
import errno
import io
import mmap
import os
import platform
import select
import socket
import ssl
import stat
import struct
import threading
import time

__all__ = ["open", "Accelerator", "ReseatError", "NoService", "Refused", "Failed", "TimedOut", "Closed"]

_VERSION, _WANTS_AREA, _BODY_MAX = 1, 1, 1 << 20
_OPEN, _OPENED, _REFUSED, _RECORDS, _ANSWERS = 1, 2, 3, 4, 5
_MAGIC, _HEADER = 0x314D414552545352, 4096
_RING_BYTES = 4 << 20
_PAYLOAD_BYTES = 64 << 10
_FRUITLESS_MAX = 10
# A wait looks again after this time, and rings again: Python has no fence that orders a write before a read.
_LOOK_AGAIN_S = 0.05


class ReseatError(Exception):
    """A stream could not be opened or cannot go on. The message says why and what to do."""


class NoService(ReseatError):
    """Nobody listens at the service's address. A later call tries again."""


class Refused(ReseatError):
    """The service does not open the stream: an unknown kernel, wrong constants, a kernel that does not build, a limit."""


class Failed(ReseatError):
    """The stream has failed for good, as when its kernel wrote beyond its output."""


class TimedOut(ReseatError, TimeoutError):
    """The timeout passed. The call can be made again."""


class Closed(ReseatError):
    """The stream was closed."""


def open(kernel, *constants, description="", source="", device="", address=None, timeout=None,
         reconnect=10.0, shared_memory=True, **named):
    """Open a stream of a kernel. Blocks until the kernel is built.

    kernel       its name, as `reseat stream list` shows
    constants    bytes-like, in the order of the kernel's description; or by name: key=...
    description, source   the texts of a .stream and a .cl file, for a kernel of your own
    device       where to begin; "": the service chooses
    address      unix:PATH or tcp:HOST:PORT, in place of $RESEAT_STREAM
    timeout      seconds that a call may wait without progress; None: no limit
    reconnect    seconds that a call looks for a service after the one it used has ended
    shared_memory   False: records go through the socket also on one machine

    Returns an Accelerator. Raises NoService, Refused or TimedOut.
    """
    body = struct.pack("<II", _VERSION, _WANTS_AREA) + b"".join(
        _string(text.encode()) for text in (kernel, description, source, device))
    constants = [("", constant) for constant in constants] + list(named.items())
    body += struct.pack("<I", len(constants))
    for name, constant in constants:
        body += _string(name.encode()) + _string(_bytes(constant, f"the constant {name}").tobytes())
    if len(body) > _BODY_MAX:
        raise Refused(f"the kernel's source and constants have {len(body)} bytes; "
                      f"at most {_BODY_MAX} can be sent")
    return Accelerator(_Dialer(body, address, shared_memory), timeout, reconnect)


def _bytes(data, what):
    try:
        return memoryview(data).cast("B")
    except TypeError as problem:
        raise TypeError(f"{what}: give bytes, or an array whose values lie together, as numpy.ascontiguousarray() "
                        f"makes it ({problem})") from problem


def _string(data):
    return struct.pack("<I", len(data)) + data


class _Body:
    """Reads the body of a frame."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def string(self):
        (size,) = self.take("<I")
        if size > len(self.data) - self.at:
            raise OSError(errno.EPROTO, "it sent half a string")
        self.at += size
        return self.data[self.at - size:self.at].decode(errors="replace")


# ---- the service ----

def _runtime_folder():
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and os.path.isdir(runtime):
        return runtime + "/reseat"
    user = f"/run/user/{os.geteuid()}"
    return user + "/reseat" if os.path.isdir(user) else f"/tmp/reseat-{os.geteuid()}"


def _credentials(host):
    """The file that `reseat serve --issue` wrote for the server, and the server's name in it."""
    path = os.environ.get("RESEAT_CREDENTIALS")
    if not path:
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        folder = os.path.join(config, "reseat", "servers")
        path = os.path.join(folder, host + ".pem")
        if not os.path.exists(path):
            found = os.listdir(folder) if os.path.isdir(folder) else []
            found = [name for name in found if name.endswith(".pem")]
            if len(found) != 1:
                raise NoService(f"there are no credentials for {host}: put the file that `reseat "
                                f"serve --issue` wrote there to {path} (mode 0600), or name it in RESEAT_CREDENTIALS")
            path = os.path.join(folder, found[0])
    try:
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise NoService(f"{path} can be accessed by other users: chmod 600 {path}")
        with io.open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as problem:
        raise NoService(f"the credentials cannot be read: {path}: {problem.strerror}") from problem
    first = text.split("\n", 1)[0]
    authority = text[text.rfind("-----BEGIN CERTIFICATE-----"):]
    if not first.startswith("reseat-server: ") or text.count("-----BEGIN CERTIFICATE-----") != 2:
        raise NoService(f"{path} is no file of credentials as `reseat serve --issue` writes them")
    return path, first.partition(": ")[2].strip(), authority


def _connect_unix(path, timeout):
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(timeout)
        connected.connect(path)
        peer = struct.unpack("iII", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if peer != os.geteuid():
            raise OSError(errno.EPERM, f"it is owned by another user (uid {peer})")
        return connected
    except OSError:
        connected.close()
        raise


def _connect_tls(host, port, timeout, path, server, authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    context.load_cert_chain(path)
    connected = socket.create_connection((host, port), min(30, timeout or 30))
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected = context.wrap_socket(connected, server_hostname=server)
        if connected.recv(1) == b"":  # One byte says that the client is admitted.
            raise OSError(errno.EACCES, "the service does not admit this certificate; is it revoked?")
        return connected
    except OSError:
        connected.close()
        raise


class _Dialer:
    """Connects to the service and opens the stream, as often as it is needed."""

    def __init__(self, body, address, shared):
        self.body = body
        self.address = (address or os.environ.get("RESEAT_STREAM")
                        or f"unix:{_runtime_folder()}/stream.sock")
        self.shared = shared and self.address.startswith("unix:")

    def _connect(self, timeout):
        scheme, _, where = self.address.partition(":")
        host, _, port = where.rpartition(":")
        if scheme != "unix" and not (scheme == "tcp" and host and port.isdigit()):
            raise NoService(f"{self.address} is no address of a stream service: "
                            "give unix:PATH or tcp:HOST:PORT")
        credentials = _credentials(host.strip("[]")) if scheme == "tcp" else None
        try:
            if credentials:
                return _connect_tls(host.strip("[]"), int(port), timeout, *credentials)
            return _connect_unix(where, timeout)
        except OSError as problem:
            advice = ("is `reseat stream serve` running there?" if credentials
                      else "start `reseat stream serve`")
            raise NoService(f"cannot connect to the stream service at {self.address}: "
                            f"{problem.strerror or problem}: {advice}") from problem

    def open(self, timeout):
        """A connection with the stream opened. Raises NoService, Refused or TimedOut."""
        while True:
            connected = self._connect(timeout)
            try:
                connected.settimeout(timeout)
                flags = struct.pack("<I", _WANTS_AREA if self.shared else 0)
                _write(connected, _OPEN, self.body[:4] + flags + self.body[8:])
                kind, data = _read(connected)
                body = _Body(data)
                if kind == _REFUSED:
                    body.take("<i")
                    raise Refused(body.string())
                if kind != _OPENED:
                    raise OSError(errno.EPROTO, f"it answered with a frame of type {kind}")
                version, *sizes = body.take("<IIIQQ")
                area, program = body.string(), body.string()
                if version != _VERSION or not all(sizes[:3]):
                    raise OSError(errno.EPROTO, f"it speaks version {version}, this library {_VERSION}")
                if area and connected.family != socket.AF_UNIX:
                    raise OSError(errno.EPROTO, "it named memory of this machine, though it is on another one")
                if not area and max(sizes[:2]) > _BODY_MAX:
                    raise Refused(f"records of more than {_BODY_MAX} bytes need memory shared with the "
                                  "service, on its machine")
                connected.settimeout(None)
                kept, connected = connected, None
                if not area:
                    return _SocketConnection(kept, *sizes[:3], program)
                try:
                    return _SharedConnection(kept, *sizes, area, program)
                except (OSError, ValueError):
                    kept.close()
                    self.shared = False  # The area cannot be opened here.
            except TimeoutError as problem:
                raise TimedOut(f"the stream was not opened within {timeout} s") from problem
            except (OSError, EOFError, struct.error) as problem:
                raise NoService(f"the stream service at {self.address} ended the connection: "
                                f"{problem}") from problem
            finally:
                if connected:
                    connected.close()


def _write(connected, kind, *parts):
    connected.sendall(struct.pack("<IHH", sum(len(part) for part in parts), kind, 0) + b"".join(parts))


def _read(connected):
    size, kind, _ = struct.unpack("<IHH", _read_whole(connected, 8))
    if size > _BODY_MAX:
        raise OSError(errno.EPROTO, f"it sent a frame of {size} bytes")
    return kind, _read_whole(connected, size)


def _read_whole(connected, size):
    data = bytearray(size)
    view = memoryview(data)
    while size:
        count = connected.recv_into(view[-size:])
        if not count:
            raise EOFError("it hung up")
        size -= count
    return bytes(data)


# ---- connections: rings of records and answers, and three totals that only grow ----

class _Connection:
    def __init__(self, input_size, output_size, capacity, program):
        self.input, self.output = input_size, output_size
        self.capacity, self.program = capacity, program
        self.sent = self.taken = 0

    def slots(self, ring, size, first, count):
        """The slots of at most `count` records from `first` on that lie together."""
        slot = first % self.capacity
        return ring[slot * size:(slot + min(count, self.capacity - slot)) * size]

    def free(self):
        return self.capacity - (self.sent - self.answered())


if platform.machine() in ("x86_64", "AMD64"):
    _fence_lock = threading.Lock()

    def _fence():
        """Order all accesses before it and after it. A lock is taken by a locked instruction."""
        with _fence_lock:
            pass
else:
    import ctypes

    _membarrier, _EXPEDITED, _REGISTER = 283, 8, 16  # Of all architectures since the common table of calls.
    _libc = ctypes.CDLL(None, use_errno=True)
    if _libc.syscall(_membarrier, _REGISTER, 0, 0):
        _EXPEDITED = 1  # Global: slower, and without registration.

    def _fence():
        """Order all accesses before it and after it."""
        _libc.syscall(_membarrier, _EXPEDITED, 0, 0)


class _SharedConnection(_Connection):
    """The rings are memory that the worker has mapped as well; the socket carries bells, single bytes."""

    def __init__(self, connected, input_size, output_size, capacity, size, path, program):
        super().__init__(input_size, output_size, capacity, program)
        area = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(area).st_size != size:
                raise OSError(errno.EPROTO, "the shared area has another size")
            mapped = memoryview(mmap.mmap(area, size))
        finally:
            os.close(area)
        self.words, self.halves = mapped[:_HEADER].cast("Q"), mapped[:_HEADER].cast("I")
        self.reason = mapped[1024:_HEADER]
        inputs, outputs = self.words[3], self.words[4]
        if (self.words[0], self.halves[2], self.halves[3], self.words[2]) != (
                _MAGIC, input_size, output_size, capacity) or max(
                    inputs + capacity * input_size, outputs + capacity * output_size) > size:
            raise OSError(errno.EPROTO, "the shared area is not the stream's")
        self.records = mapped[inputs:inputs + capacity * input_size]
        self.answers = mapped[outputs:outputs + capacity * output_size]
        connected.setblocking(False)
        self.socket = connected
        self.poll = select.poll()
        self.poll.register(connected, select.POLLIN)

    def answered(self):
        answered = self.words[256 // 8]
        return answered if self.taken <= answered <= self.sent else self.taken

    def failure(self):
        status = self.halves[48 // 4]
        if not status:
            answered = self.words[256 // 8]
            if self.taken <= answered <= self.sent:
                return None
            return f"the worker's totals are wrong: {answered} records answered of {self.sent}"
        reason = bytes(self.reason[:self.halves[52 // 4]]).decode(errors="replace")
        return reason or f"the stream failed: {os.strerror(status)}"

    def send(self, count):
        self.sent += count
        self._publish(128, self.sent)

    def release(self, count):
        self.taken += count
        self._publish(384, self.taken)

    def _publish(self, offset, total):
        _fence()  # The records are written before their total.
        self.words[offset // 8] = total
        _fence()
        self._ring()

    def _ring(self):
        if self.halves[640 // 4] == 1:
            try:
                self.socket.send(b"\0")
            except OSError:
                pass  # It has bells enough, or wait() finds that it has ended.

    def wait(self, seen, seconds):
        """Wait until answered() differs from `seen`, or a while. False: the service has ended."""
        self.halves[512 // 4] = 1
        _fence()
        if self.answered() == seen and not self.failure():
            self._ring()
            if not self.poll.poll(1000 * min(seconds, _LOOK_AGAIN_S)):
                return True
        self.halves[512 // 4] = 0
        try:
            while self.socket.recv(256):
                pass
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def payload(self):
        return self.halves[40 // 4]

    def close(self):
        self.socket.close()


class _SocketConnection(_Connection):
    """Records and answers go through the socket. A record stays in the ring until it is answered."""

    def __init__(self, connected, input_size, output_size, capacity, program):
        capacity = min(capacity, max(2, _RING_BYTES // max(input_size, output_size)))
        super().__init__(input_size, output_size, capacity, program)
        self.records = memoryview(bytearray(capacity * input_size))
        self.answers = memoryview(bytearray(capacity * output_size))
        self.socket = connected
        self.socket.setblocking(False)
        self.written = self.come = 0  # Records written to the socket; answers that came.
        self.pending = b""  # What the socket did not take yet.
        self.received = bytearray()  # Of a frame that is not whole, or that the ring has no room for.
        self.problem, self.ended = None, False

    def answered(self):
        return self.come

    def failure(self):
        return self.problem

    def send(self, count):
        self.sent += count
        self._write_some()

    def release(self, count):
        self.taken += count

    def _write_some(self):
        try:
            while self.pending or self.written < self.sent:
                if not self.pending:
                    most = max(1, (256 << 10) // self.input)
                    some = self.slots(self.records, self.input, self.written,
                                      min(most, self.sent - self.written))
                    self.written += len(some) // self.input
                    self.pending = struct.pack("<IHH", len(some), _RECORDS, 0) + some
                self.pending = self.pending[self.socket.send(self.pending):]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError:
            self.ended = True

    def _read_some(self):
        try:
            while len(self.received) < _BODY_MAX + 8:
                data = self.socket.recv(256 << 10)
                if not data:
                    self.ended = True
                    return
                self.received += data
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError:
            self.ended = True

    def _keep(self):
        """Put the answers of whole frames into the ring, as far as there is room."""
        while len(self.received) >= 8 and not self.problem:
            size, kind, _ = struct.unpack_from("<IHH", self.received)
            if size > _BODY_MAX:
                self.problem = f"the service broke the rules of its protocol: a frame of {size} bytes"
                return
            if len(self.received) < 8 + size:
                return
            count = size // self.output
            if kind == _REFUSED:
                body = _Body(bytes(self.received[12:8 + size]))
                self.problem = body.string()
            elif kind != _ANSWERS or size % self.output or self.come + count > self.written:
                self.problem = (f"the service broke the rules of its protocol: a frame of type {kind} "
                                f"with {size} bytes")
            else:
                room = min(count, self.capacity - (self.come - self.taken))
                at = 8
                for _ in range(2):  # Around the ring's end.
                    some = self.slots(self.answers, self.output, self.come, room)
                    some[:] = self.received[at:at + len(some)]
                    at, room = at + len(some), room - len(some) // self.output
                    self.come += len(some) // self.output
                if at < 8 + size:  # The rest waits, as a frame of its own.
                    self.received[:at] = struct.pack("<IHH", 8 + size - at, _ANSWERS, 0)
                    return
                size = at - 8
            del self.received[:8 + size]

    def wait(self, seen, seconds):
        """As of _SharedConnection."""
        self._write_some()
        self._keep()
        if self.come != seen or self.problem:
            return True
        pending = getattr(self.socket, "pending", None)
        if not (pending and pending()):
            poll = select.poll()
            poll.register(self.socket, select.POLLIN | (
                select.POLLOUT if self.pending or self.written < self.sent else 0))
            poll.poll(1000 * min(seconds, _LOOK_AGAIN_S))
        self._read_some()
        self._write_some()
        self._keep()
        return not self.ended or self.come != seen or self.problem is not None

    def payload(self):
        return 0

    def close(self):
        self.socket.close()


class Accelerator:
    """A kernel on a device, as a function from records to answers.

    Answers come in the order of the records, each exactly once, also when the device is moved or lost, or
    the service is started again. An Accelerator is for one thread at a time. Calls that wait end with
    TimedOut when the timeout passes, and with KeyboardInterrupt.
    """

    def __init__(self, dialer, timeout, reconnect):
        self._dialer, self._timeout, self._reconnect = dialer, timeout, reconnect
        self._connection = dialer.open(timeout)
        self._input, self._output = self._connection.input, self._connection.output
        self._program = self._connection.program
        self._left_records = self._left_answers = b""
        self._sent = self._taken = self._fruitless = 0
        self._failed = None
        self._closed = False
        self._use = None

    input_size = property(lambda self: self._input, doc="Bytes of a record.")
    output_size = property(lambda self: self._output, doc="Bytes of an answer.")
    program = property(lambda self: self._program,
                       doc="The stream's name, for `reseat ps`, `move`, `suspend` and `explain`.")
    shared = property(lambda self: isinstance(self._connection, _SharedConnection),
                      doc="Do records go through memory shared with the service?")

    def run(self, records, out=None):
        """Answer a batch of records. Blocks until all are answered.

        records   whole records, one behind the other: anything with the buffer protocol
        out       where the answers go: a writable buffer of at least their size; None: a new bytearray
        Returns out.
        """
        records = _bytes(records, "the batch")
        if len(records) % self._input:
            raise ValueError(f"{len(records)} bytes are no whole number of records; "
                             f"this kernel's records have {self._input} bytes")
        size = len(records) // self._input * self._output
        out = bytearray(size) if out is None else out
        answers = _bytes(out, "out")
        if len(answers) < size:
            raise ValueError(f"the answers have {size} bytes; there is room for {len(answers)}")
        self._begin(None)
        sent = come = 0
        while come < size:
            slots = self._claim(len(records) - sent)
            if slots:
                slots[:] = records[sent:sent + len(slots)]
                self._send(len(slots) // self._input)
                sent += len(slots)
            some = self._answers()
            if some:
                answers[come:come + len(some)] = some
                come += len(some)
                self._release(len(some) // self._output)
            elif not slots:
                self._wait()
        return out

    def map(self, records):
        """Answer records lazily, in order: a generator of bytes.

        records   an iterable of bytes-like records; it is read up to the rings' capacity ahead of
                  the answers
        A later use of the stream discards the answers of a generator that was not finished, which then
        raises RuntimeError.
        """
        use = object()
        self._begin(use)
        return self._map(iter(records), use)

    def _map(self, records, use):
        more = True
        while more or self._sent != self._taken:
            self._check_use(use)
            packed = 0
            slots = self._claim(1 << 30) if more else b""
            try:
                while packed < len(slots):
                    record = next(records, None)
                    if record is None:
                        more = False
                        break
                    record = _bytes(record, "a record")
                    if len(record) != self._input:
                        raise ValueError(f"a record of {len(record)} bytes; this kernel's have {self._input}")
                    slots[packed:packed + self._input] = record
                    packed += self._input
            finally:
                if packed:
                    self._send(packed // self._input)
            some = bytes(self._answers())
            if some:
                self._release(len(some) // self._output)
                for at in range(0, len(some), self._output):
                    yield some[at:at + self._output]
                    self._check_use(use)
            elif not packed and (more or self._sent != self._taken):
                self._wait()

    def close(self):
        """End the stream; records that are not answered are dropped. May be called twice."""
        self._closed = True
        if self._connection:
            self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- records and answers over as many connections as it takes ----

    def _check_use(self, use):
        if use is not self._use:
            raise RuntimeError("this generator ended when another use of the stream began")

    def _begin(self, use):
        self._use = None
        while self._sent != self._taken:
            count = len(self._answers()) // self._output
            if count:
                self._release(count)
            else:
                self._wait()
        self._use = use

    def _has_failed(self):
        if not self._failed and self._connection:
            why = self._connection.failure()
            self._failed = Failed(why) if why else None
        return self._closed or self._failed

    def _raise(self):
        raise Closed("the stream is closed") if self._closed else self._failed

    def _claim(self, size):
        """Free slots of at most `size` bytes, for as many records as are to be packed at a time; empty: there are
        none now."""
        now = self._connection
        if self._has_failed() or not now or not self._send_left():
            return b""  # _answers() raises, after the answers that came.
        return now.slots(now.records, self._input, now.sent, min(size // self._input, now.free(),
                             now.payload() or max(1, _PAYLOAD_BYTES // self._input)))

    def _send(self, count):
        self._sent += count
        self._connection.send(count)

    def _answers(self):
        """The answers that are there. They stay until they are released."""
        if self._left_answers:
            return self._left_answers
        now, last = self._connection, self._has_failed()  # No answer comes after it.
        some = now and now.slots(now.answers, self._output, now.taken, now.answered() - now.taken)
        if not some and last:
            self._raise()
        return some or b""

    def _release(self, count):
        if self._left_answers:
            self._left_answers = self._left_answers[count * self._output:]
        else:
            self._connection.release(count)
        self._taken += count

    def _send_left(self):
        """Give the connection records that are left from the one before. False: some still are."""
        now = self._connection
        while self._left_records and now.free():
            slots = now.slots(now.records, self._input, now.sent,
                              min(now.free(), len(self._left_records) // self._input))
            slots[:] = self._left_records[:len(slots)]
            self._left_records = self._left_records[len(slots):]
            now.send(len(slots) // self._input)
        return not self._left_records

    def _wait(self):
        """Wait for answers, which make room as well, or for a new connection. Connects again when the service has ended."""
        until = time.monotonic() + self._timeout if self._timeout is not None else None
        lost, pause = None, 0.0
        while True:
            now, last = self._connection, self._has_failed()
            if now and now.answered() > now.taken:
                return
            if last:
                self._raise()
            left = until - time.monotonic() if until else None
            if left is not None and left <= 0:
                raise TimedOut(f"no answer came within {self._timeout} s; "
                               f"{self._sent - self._taken} records are on their way")
            if now:
                self._send_left()
                seen = now.answered()
                if seen > now.taken or now.failure():
                    return
                if now.wait(seen, 3600 if left is None else left):
                    continue
                self._end(now)
                if self._left_answers:
                    return
                if not self._fruitless:
                    continue
            else:
                try:
                    self._restart(self._dialer.open(left))
                    return
                except NoService as problem:
                    lost = lost or time.monotonic()
                    if time.monotonic() - lost + pause >= self._reconnect:
                        raise NoService(f"the stream service ended, and {self._sent - self._taken} records "
                                        f"are on their way: {problem}") from problem
            time.sleep(pause)
            pause = min(0.5, 0.01 + 1.5 * pause)

    def _end(self, ended):
        """Keep what the ended service's connection has. What its worker answers from here on is done again."""
        if ended.failure():
            return
        answered = ended.answered()
        first, answers, records = ended.taken, bytearray(), bytearray()
        while first < answered:
            answers += ended.slots(ended.answers, self._output, first, answered - first)
            first = ended.taken + len(answers) // self._output
        while first < ended.sent:
            records += ended.slots(ended.records, self._input, first, ended.sent - first)
            first = answered + len(records) // self._input
        self._left_answers = bytes(self._left_answers) + bytes(answers)
        self._left_records = bytes(records) + bytes(self._left_records)
        self._connection = None
        ended.close()
        self._fruitless = 0 if answered else self._fruitless + 1
        if self._fruitless == _FRUITLESS_MAX or not self._reconnect:
            self._failed = NoService(f"the stream service ended; {self._sent - self._taken} records "
                                     "are on their way")

    def _restart(self, made):
        if (made.input, made.output) != (self._input, self._output):
            made.close()
            self._failed = Failed("the service was started again with another kernel of this name: its records "
                                  f"have {made.input} and {made.output} bytes, before {self._input} "
                                  f"and {self._output}")
            raise self._failed
        self._connection, self._program = made, made.program
        self._send_left()
