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


def draw(data, picture):
    return subprocess.run([PLOT, "-", picture], input=data, encoding="utf-8", check=False,
                          stderr=subprocess.PIPE)


def texts(picture):
    return ["".join(text.itertext()) for text in xml.parse(picture).iter(SVG + "text")]


def markers(picture):
    return sum(use.get("x") is not None and "stroke-linejoin" not in (use.get("style") or "")
               for use in xml.parse(picture).iter(SVG + "use"))


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
        check(folder, OCCUPANCY, ["render$", "urgent$", "small, 64 MiB", "large, 160 MiB"])
        for wrong in ('"a word"', "["):
            none = os.path.join(folder, "none.svg")
            refused = draw(wrong, none)
            assert refused.returncode == 1 and "is not the JSON of" in refused.stderr, refused.stderr
            assert not os.path.exists(none)


if __name__ == "__main__":
    main()
