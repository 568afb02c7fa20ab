#!/usr/bin/python3
"""A guest's migration that does not go as planned, with a program in it that computes outside.

  failures.py BUILD CASE

  cancelled  an operator gives the migration up: the program goes on where it was, over the
             connections that it has, and the next migration succeeds
  back       the guest migrates, and back
  killed     the server is killed while the guest migrates: the program is told within a limit,
             what it printed until then is right, and the same guest can use the device of a host
             that is added then
"""

import signal
import sys
import time

from guest import GuestError
from scene import Scene

STEP_MS, PART_STEPS = 50, 20
SLOW_MEGABYTES_S = 10  # no migration ends at once
CANCEL_SECONDS = 0.5


def fail(why):
    sys.exit(f"failures: {why}")


def begin(scene):
    scene.open_hosts()
    scene.boot()
    scene.start(scene.old.devices[0])
    scene.wait_step(PART_STEPS)


def cancelled(scene):
    begin(scene)

    def cancel(machine):
        time.sleep(CANCEL_SECONDS)
        machine.qmp.execute("migrate_cancel")

    try:
        scene.migrate(megabytes_s=SLOW_MEGABYTES_S, meanwhile=cancel)
        fail("the migration ended, and was to be cancelled")
    except GuestError as error:
        if "cancelled" not in str(error):
            raise
    if len(scene.tenant.machines) != 1:
        fail("the machine that it was to migrate to is still there")
    scene.wait_steps_more(PART_STEPS)
    if not scene.old.connections(scene.tenant.machines[0].process.pid):
        fail("the connection was lost")
    scene.migrate()
    scene.wait_steps_more(PART_STEPS)
    scene.end()


def back(scene):
    begin(scene)
    for _ in range(2):
        scene.migrate()
        scene.wait_steps_more(PART_STEPS)
        scene.tenant.leave_old()
    scene.end()


def killed(scene):
    begin(scene)
    scene.migrate(meanwhile=lambda _: scene.old.stop(kill=True))
    status, output = scene.wait_end()
    if status == 0:
        fail("it ended well without the device that had its only bytes")
    if not output or not scene.native(scene.watch.step).startswith(output):
        fail(f"before it was told it printed\n{output.decode(errors='replace')}")
    scene.add_new_host()
    scene.start(scene.new.devices[0])
    scene.wait_step(PART_STEPS)
    scene.end()


CASES = {"cancelled": cancelled, "back": back, "killed": killed}


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in CASES:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: fail("told to end"))
    with Scene(sys.argv[1], STEP_MS) as scene:
        CASES[sys.argv[2]](scene)


if __name__ == "__main__":
    main()
