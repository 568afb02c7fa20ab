#!/usr/bin/python3
"""scripts/plot draws what is in the data, and refuses what is no data: test_plot.py PLOT RESEAT."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

PLOT, RESEAT = sys.argv[1:]
SVG = "{http://www.w3.org/2000/svg}"
# A program is on one device, on none, on the other; moved, its frames come at another speed.
OCCUPANCY = {"devices": [["small", 64], ["large", 160]],
             "samples": [[0, {"render$": ["running", "small", 32]}],
                         [1, {"render$": ["suspended", None, 0], "urgent$": ["running", "large", 80]}],
                         [2, {"render$": ["running", "large", 96]}], [3, {}]]}
TIMELINE = {"points": [[i / 10, i if i < 50 else 2 * i - 50] for i in range(100)],
            "moves": [[4.8, 5.2, "gpu7", "cpu8", 1.25]]}
# A server joins and is lost; a program that was on a device of its own was on the server's.
PLUGGED = {"plugged": True, "program": "solver$", "points": [[i / 10, i] for i in range(100)],
           "places": [[0, 3, "cpu8"], [3, 10, "oak$/cpu0"]], "marks": [[2, "oak plugged in"], [9, "oak vanishes"]],
           "servers": {"oak$": [[2, 2.2, "connecting"], [2.2, 9.5, "up"], [9.5, 10, "lost"]]}}
RECOVERED = {"recovered": True, "program": "solver$", "steps": [[i, i] for i in range(9)],
             "losses": [{"at": 3, "on": 4, "device": "cpu0", "to": "cpu1", "age": 1}],
             "places": [[0, 3, "cpu0"], [4, 8, "cpu1"]], "ages": [[i, 1] for i in range(9)]}
ENERGY = {"energy": [{"name": name, "seconds": 3, "joules": 9, "above": 0, "caps": caps, "steps": [[i, i] for i in range(4)],
                      "samples": [[i, {"a$": 9, "b": 1}] for i in range(4)], "places": [[0, 3, "gpu0$"]]}
                     for name, caps in (("free", []), ("bound$", [[1, 5]]))]}
GUEST = {"guest": [[i, [i, 0]] for i in range(5)], "devices": ["cpu0", "cpu1"], "events": [[1, 2, "moved$"]]}
SPECTOR = {"spector": [{"kernel": name, "native": 1, "forms": {form: {
    "still": 1, "overhead": 0.01, "wait": 0.1, "moves": []} for form in ("whole", "pieces", "non-blocking")}}
    for name in ("fir", "dct")],
    "published": {"blocking_percent": [0.5, 14], "non_blocking_most_percent": 0.9,
                  "blocking": {"fir": [14, "the most"]}, "non-blocking": {}},
    "seconds": 1, "slice_ms": 10, "from": "gpu7", "to": "gpu8"}


def draw(data, picture):
    return subprocess.run([PLOT, "-", picture], input=data, encoding="utf-8", check=False,
                          stderr=subprocess.PIPE)


def texts(picture):
    return ["".join(text.itertext()) for text in xml.parse(picture).iter(SVG + "text")]


def markers(picture):
    return sum(use.get("x") is not None and "stroke-linejoin" not in (use.get("style") or "")
               for use in xml.parse(picture).iter(SVG + "use"))


def fills(picture, colour):
    return f"fill: {colour}" in pathlib.Path(picture).read_text(encoding="utf-8")


def check(folder, data, words):
    picture = os.path.join(folder, "picture.svg")
    result = draw(json.dumps(data), picture)
    assert result.returncode == 0, result.stderr
    said = texts(picture)
    for word in words:
        assert any(word in text for text in said), f"{word!r} is not in {said}"
    return picture


def main():
    with tempfile.TemporaryDirectory() as folder:
        printed = subprocess.run([RESEAT, "simulate", "synthetic:devices=4,programs=20,hours=1", "--json",
                                  "--reclaim", "0,0.125,0.25"], check=True, stdout=subprocess.PIPE)
        regimes = {run["regime"] for run in json.loads(printed.stdout)["runs"]}
        assert len(regimes) == 5
        picture = check(folder, json.loads(printed.stdout),
                        [*regimes, "20 programs on 4 devices", "0.125", "0.25", "work lost"])
        assert markers(picture) >= 6 * 5 * 3, f"{markers(picture)} points"
        words = ["gpu7", "cpu8", "1.2 ms", "frames per second", "10", "20"]
        first, again = (pathlib.Path(check(folder, TIMELINE, words)).read_bytes() for _ in range(2))
        assert first == again, "the same data gives another picture"
        # Each band and colour is in a legend; greys are servers, colours devices.
        check(folder, TIMELINE, ["while it is moved"])
        picture = check(folder, PLUGGED, ["a server is connecting", "a server is up", "a server is lost",
                                          "oak vanishes", "oak$/cpu0"])
        assert fills(picture, "#d9d9d9") and not fills(picture, "#c0504d")
        check(folder, RECOVERED, ["from the kill until"])
        check(folder, ENERGY, ["free: 3.0 s, 9 J", "bound$: 3.0 s, 9 J", "gpu0$", "gpu-a$", "the cap"])
        check(folder, GUEST, ["while what is written above it happens", "moved$"])
        picture = check(folder, SPECTOR, ["blocking, least to most", "blocking, of this kernel", "non-blocking: "])
        assert fills(picture, "#222222"), "what is published of fir is not drawn"
        check(folder, OCCUPANCY, ["render$", "urgent$", "small, 64 MiB", "large, 160 MiB"])
        for wrong in ('"a word"', "["):
            none = os.path.join(folder, "none.svg")
            refused = draw(wrong, none)
            assert refused.returncode == 1 and "is not the JSON of" in refused.stderr, refused.stderr
            assert not os.path.exists(none)


if __name__ == "__main__":
    main()
