"""A program that uses what cannot be carried runs where it is, says why, and is not moved."""

from lab import Program, check, expect


def pinned(lab, program, what, why):
    """Its output is the native one; meanwhile ps says that it is pinned and @why, and so do move and suspend."""
    lab.use_new_cache()
    there, here = lab.devices()[:2]  # POCL's basic and pthread
    native = lab.native([program, what], TEST_DEVICE="1")
    process = Program(lab, [program, what], "--profile", "native", "--device", here, busy=True)
    app = process.comes_to("is pinned", lambda app: app.get("pinned"))
    check("ps says why", why in app["pinned"], app["pinned"])
    process.is_refused(why, "move", there)
    process.is_refused(why, "suspend")
    check("it is not moved", not process.app().get("moves"))
    got = process.end()
    expect("its end", got, native)
    check("it is offered", b"not offered" not in got[1], got)


def not_offered(lab, program, what, how=()):
    """Without the native profile: then it could be moved."""
    lab.use_new_cache()
    here = lab.devices()[1]
    status, output = Program(lab, [program, what], *how, "--device", here).end()
    check("it is not offered", status == 0 and b"not offered" in output, (status, output))


def not_offered_isolated(lab, program, what):
    """Nor with the native one, as the driver is in another process."""
    not_offered(lab, program, what, ("--profile", "native", "--isolate"))
