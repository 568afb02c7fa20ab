"""A stream service that does what the real one cannot be made to do: it sends rubbish, and ends at chosen points.

Its only kernel is `xor`: records and answers of 16 bytes, each answer the record xor the constant.
"""
import fcntl
import mmap
import os
import select
import socket
import struct
import threading

SIZE = 16
OPEN, OPENED, REFUSED, RECORDS, ANSWERS = 1, 2, 3, 4, 5


def xor(data, key):
    key = key * (len(data) // len(key))
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(len(data), "little")


def records(count, first=0):
    return b"".join((first + i).to_bytes(8, "big") + ((first + i) * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8, "big")
                    for i in range(count))


def string(data):
    return struct.pack("<I", len(data)) + data


def frame(kind, body):
    return struct.pack("<IHH", len(body), kind, 0) + body


def read(connection, size):
    data = b""
    while len(data) < size:
        some = connection.recv(size - len(data))
        if not some:
            raise EOFError
        data += some
    return data


class Double:
    """Listens at a path until it is closed; with `tls`, the context of a server, at a port.

    lives    for each connection in turn, after how many answers it is cut; a string names rubbish to send in their
             place; the connections after these live on
    """

    def __init__(self, path, lives=(), capacity=64, area=True, tls=None):
        self.path, self.lives, self.capacity, self.area, self.tls = path, list(lives), capacity, area, tls
        self.size = 4096 + 2 * capacity * SIZE  # The C library wants whole pages: 256 answers or more.
        self.opened = 0
        if tls:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}"
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(path)
            self.listener.listen()
            self.address = "unix:" + path
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()
        if not self.tls:
            os.unlink(self.path)

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
                connection.sendall(b"R")  # The client is admitted.
            with connection:
                self.open(connection)
        except (OSError, EOFError):
            pass

    def open(self, connection):
        size, kind, _ = struct.unpack("<IHH", read(connection, 8))
        body = read(connection, size)
        assert kind == OPEN
        flags = struct.unpack_from("<I", body, 4)[0]
        at, strings = 8, []
        for index in range(6):
            if index == 4:
                at += 4
            length = struct.unpack_from("<I", body, at)[0]
            strings.append(body[at + 4:at + 4 + length])
            at += 4 + length
        life = self.lives[self.opened] if self.opened < len(self.lives) else None
        shared = self.area and flags & 1
        if life != "unshared" or not shared:
            self.opened += 1
        if life == "refuse":
            connection.sendall(frame(REFUSED, struct.pack("<i", -2) + string(b"there is no kernel xor: try aes")))
        elif life == "half":
            connection.sendall(frame(OPENED, bytes(60))[:20])
        elif life == "short":
            connection.sendall(frame(OPENED, bytes(7)))
        elif life == "version":
            connection.sendall(frame(OPENED, struct.pack("<IIIQQ", 9, SIZE, SIZE, 8, 0) + string(b"") * 2))
        elif life == "gigabyte":
            connection.sendall(struct.pack("<IHH", 1 << 30, OPENED, 0))
        elif life == "string":
            connection.sendall(frame(OPENED, struct.pack("<IIIQQI", 1, SIZE, SIZE, 8, 0, 1 << 31)))
        elif life == "noise":
            connection.sendall(bytes(range(256)) * 64)
        elif shared or life == "named":
            self.serve_area(connection, strings[5], life)
        else:
            self.serve_frames(connection, strings[5], life)

    def serve_area(self, connection, key, life):
        size = self.size
        area = os.memfd_create("double", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(area, size)
        fcntl.fcntl(area, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        memory = mmap.mmap(area, size)
        magic = 0 if life == "magic" else 0x314D414552545352
        offset = size if life == "offset" else 4096
        struct.pack_into("<QIIQQQ", memory, 0, magic, SIZE, SIZE, self.capacity, offset,
                         4096 + self.capacity * SIZE)
        path = "/proc/self/fd/999999" if life == "unshared" else f"/proc/{os.getpid()}/fd/{area}"
        connection.sendall(frame(OPENED, struct.pack("<IIIQQ", 1, SIZE, SIZE, self.capacity, size)
                                 + string(path.encode()) + string(b"double")))
        words = memoryview(memory).cast("Q")
        halves = memoryview(memory).cast("I")
        answered = 0
        try:
            while True:
                halves[640 // 4] = 1
                sent, taken = words[16], words[48]
                assert taken <= answered <= sent <= answered + self.capacity
                if life == "total" and sent:
                    words[32] = sent + 1
                    connection.send(b"!")
                    read(connection, 1 << 30)
                if isinstance(life, int) and answered >= life:
                    return
                if life == "fail" and answered >= 40:
                    reason = b"the kernel wrote beyond its output"
                    memory[1024:1024 + len(reason)] = reason
                    halves[52 // 4], halves[48 // 4] = len(reason), 14
                    connection.send(b"!")
                    read(connection, 1 << 30)
                last = min(sent, taken + self.capacity, answered + 7)
                if isinstance(life, int):
                    last = min(last, life)
                elif life == "stall":
                    last = answered
                if last == answered:
                    if select.select([connection], [], [], 0.02)[0] and not connection.recv(4096):
                        return
                    continue
                halves[640 // 4] = 0
                for i in range(answered, last):
                    at = 4096 + i % self.capacity * SIZE
                    to = at + self.capacity * SIZE
                    memory[to:to + SIZE] = xor(memory[at:at + SIZE], key)
                answered = last
                words[32] = answered
                if halves[512 // 4]:
                    connection.send(b"!")
        finally:
            os.close(area)

    def serve_frames(self, connection, key, life):
        connection.sendall(frame(OPENED, struct.pack("<IIIQQ", 1, SIZE, SIZE, self.capacity, self.size)
                                 + string(b"") + string(b"double")))
        answered = 0
        while not (isinstance(life, int) and answered >= life):
            size, kind, _ = struct.unpack("<IHH", read(connection, 8))
            records = read(connection, size)
            assert kind == RECORDS and size % SIZE == 0
            if life == "stall":
                continue
            if isinstance(life, int):
                records = records[:(life - answered) * SIZE]
            answered += len(records) // SIZE
            answers = xor(records, key) if records else b""
            if life == "more":
                answers += bytes(SIZE * (self.capacity + 1))
            elif life == "part":
                answers = answers[:-1]
            elif life == "fail":
                answers = b""
                connection.sendall(frame(REFUSED, struct.pack("<i", -14)
                                         + string(b"the kernel wrote beyond its output")))
            connection.sendall(frame(ANSWERS, answers))
