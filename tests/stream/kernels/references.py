"""For each kernel of stream/kernels: random records, its constants, and the answers, computed in another way."""

import ctypes

import numpy as np

NAMES = ("aes", "kmp", "stencil", "fft", "nw", "viterbi")


def aes_openssl(key, blocks):
    """AES-128-ECB by OpenSSL."""
    crypto = ctypes.CDLL("libcrypto.so.3")
    for name in ("EVP_CIPHER_CTX_new", "EVP_aes_128_ecb"):
        getattr(crypto, name).restype = ctypes.c_void_p
    context, out = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new()), ctypes.create_string_buffer(len(blocks) + 32)
    size = ctypes.c_int()
    assert crypto.EVP_EncryptInit_ex(context, ctypes.c_void_p(crypto.EVP_aes_128_ecb()), None, key, None) == 1
    assert crypto.EVP_EncryptUpdate(context, out, ctypes.byref(size), blocks, len(blocks)) == 1
    crypto.EVP_CIPHER_CTX_free(context)
    assert size.value == len(blocks)
    return out.raw[:len(blocks)]


def aes(random, count):
    key, blocks = random.bytes(16), random.bytes(16 * count)
    return {"key": key}, blocks, aes_openssl(key, blocks)


def kmp_search(text, pattern):
    found = [i for i in range(len(text)) if pattern and text.startswith(pattern, i)]
    return np.array([len(found), found[0] if found else 0xffffffff], "<u4").tobytes()


def kmp(random, count):
    """Texts of two letters, in which a pattern with long borders is often begun."""
    pattern = (b"ab" * 20 + b"aab")[:random.randint(1, 12)] if random.randint(4) else b"ab" * 32
    texts = [random.choice([b"ab", b"a", b"b", b"aab", b"\0"], 1024).tobytes().replace(b"\0", b"")
             for _ in range(count)]
    texts = [(text * 2)[:1024].ljust(1024, b"a") for text in texts]
    texts[::3] = [text[len(pattern):] + pattern for text in texts[::3]]
    return ({"pattern": pattern.ljust(64, b"\0")}, b"".join(texts),
            b"".join(kmp_search(text, pattern) for text in texts))


def stencil(random, count):
    tiles = random.randint(0, 1 << 32, (count, 32, 32), np.uint32)
    weights = random.randint(0, 1 << 32, (3, 3), np.uint32)
    wide = np.pad(tiles, ((0, 0), (1, 1), (1, 1)))
    answers = sum(wide[:, y:y + 32, x:x + 32] * weights[y, x] for y in range(3) for x in range(3))
    return {"filter": weights.tobytes()}, tiles.tobytes(), answers.astype(np.uint32).tobytes()


def fft_halves(points):
    """Of the last axis, by halves of half the length; (re, im) in whole numbers."""
    re, im = points
    count = re.shape[-1]
    if count == 1:
        return re, im
    (re0, im0), (re1, im1) = (fft_halves((re[..., i::2], im[..., i::2])) for i in (0, 1))
    angle = 2 * np.pi * np.arange(count // 2) / count
    cos, sin = (np.rint(32767 * part).astype(np.int64) for part in (np.cos(angle), -np.sin(angle)))
    re1, im1 = ((part + 16384) >> 15 for part in (re1 * cos - im1 * sin, re1 * sin + im1 * cos))
    return tuple(np.clip(np.concatenate(((a + b) >> 1, (a - b) >> 1), -1), -32768, 32767)
                 for a, b in ((re0, re1), (im0, im1)))


def fft(random, count):
    points = random.randint(-32768, 32768, (count, 256, 2)).astype(np.int64)
    points[::2] //= 2  # saturates nowhere
    answers = np.stack(fft_halves((points[..., 0], points[..., 1])), -1)
    exact = np.fft.fft(points[::2, :, 0] + 1j * points[::2, :, 1]) / 256
    assert np.abs(answers[::2, :, 0] - exact.real).max() < 6
    assert np.abs(answers[::2, :, 1] - exact.imag).max() < 6
    return {}, points.astype("<i2").tobytes(), answers.astype("<i2").tobytes()


def nw_align(a, b):
    """Of all prefixes, the best alignment as (score, two strings), each made from a shorter one's."""
    best = {}
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            ways = [(0, b"", b"")] if i == j == 0 else []
            if i and j:
                score, x, y = best[i - 1, j - 1]
                ways.append((score + (1 if a[i - 1] == b[j - 1] else -1), x + a[i - 1:i], y + b[j - 1:j]))
            if i:
                score, x, y = best[i - 1, j]
                ways.append((score - 1, x + a[i - 1:i], y + b"-"))
            if j:
                score, x, y = best[i, j - 1]
                ways.append((score - 1, x + b"-", y + b[j - 1:j]))
            best[i, j] = max(ways, key=lambda way: way[0])
    return best[len(a), len(b)]


def nw(random, count):
    records, answers = [], []
    for i in range(count):
        a, b = (random.choice(list(b"ACGT"), size).astype(np.uint8).tobytes()
                for size in ((64, 64), (0, 30), (0, 0), random.randint(0, 65, 2))[min(i, 3)])
        b = a[i % 7:] + b[len(a) - i % 7:] if i % 2 else b  # alike
        b = b[:64]
        score, x, y = nw_align(a, b)
        records.append(a.ljust(64, b"\0") + b.ljust(64, b"\0"))
        answers.append(np.array([score, len(x)], "<i4").tobytes() + x.ljust(128, b"\0") + y.ljust(128, b"\0"))
    return {}, b"".join(records), b"".join(answers)


def viterbi(random, count):
    """Few different costs, so that many paths are as cheap."""
    model = random.randint(0, 9, 16 + 256 + 256).astype(np.int32)
    begin, step, seen = model[:16], model[16:272].reshape(16, 16), model[272:].reshape(16, 16)
    records, answers = random.randint(0, 256, (count, 64)).astype(np.uint8), []
    for record in records & 15:
        costs, came = begin + seen[:, record[0]], []
        for what in record[1:]:
            ways = costs[:, None] + step
            came.append(ways.argmin(0))
            costs = ways.min(0) + seen[:, what]
        path = [costs.argmin()]
        for states in reversed(came):
            path.append(states[path[-1]])
        answers.append(costs.min().astype("<i4").tobytes() + bytes(map(int, reversed(path))))
    return {"model": model.tobytes()}, records.tobytes(), b"".join(answers)


def example(name, seed, count):
    """(constants by name, records, answers), the same for each seed."""
    return globals()[name](np.random.RandomState(seed), count)
