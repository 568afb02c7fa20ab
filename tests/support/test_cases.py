#!/usr/bin/python3
"""What the runner of the tests in C says and ends with: test_cases.py SAMPLE"""

import subprocess
import sys


def run(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.split("\n"), done.stderr


def check(test, status, *told, out=("begun", "over")):
    """The @test ends so, says that in its errors and, line by line, @out."""
    result, lines, errors = run(test)
    if result != status or lines[:-1] != list(out) or any(part not in errors for part in told):
        sys.exit(f"{test}: {result}, {lines}\n{errors}")
    return errors


if "failed" in check("passes", 0):
    sys.exit("a test that passes is said to fail")
check("fails_and_goes_on", 1, "1 == 2 told 3", "sample/fails_and_goes_on failed",
      out=("begun", "went on", "over"))
check("fails_and_ends", 1, '"left"\n"right"', "sample/fails_and_ends failed", out=("begun",))
check("fails_in_a_child", 1, "in the child", "sample/fails_in_a_child failed", out=("begun", "begun", "over"))
check("crashes", 1, "failed: signal 6", out=())
check("takes_too_long", 1, "it took too long", out=())
check("sample/ends_with_seven", 0, out=("begun",))
check("ends_with_another", 1, "failed: it ended with 6", out=("begun",))
check("is_skipped", 0, "skipped: for a reason", out=("begun",))
check("runs_thrice", 1, "sample/runs_thrice 2 failed", out=("begun", "over") * 2 + ("begun",))
check("nothing_of_this_name", 1, "no such test", out=())
status, names, _ = run("--list")
if status or names[0] != "sample/passes" or len(names) != 11:
    sys.exit(f"--list: {status}, {names}")
status, lines, errors = run("--jobs", "4", "@(passes|takes_too_long|crashes)")
if status != 1 or errors.count("failed") != 2:
    sys.exit(f"three at once: {status}\n{errors}")
if run("--jobs", "0")[0] != 2:
    sys.exit("no job at all is accepted")
