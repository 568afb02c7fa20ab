#!/usr/bin/python3
"""
What a session of a device server cannot do, on the kernel of Debian's in a guest.

  contained.py TOOL

The tool goes through a session's steps and makes system calls that have to be refused: as a server
of root's has its sessions, and as an ordinary user's.
"""

import os
import sys
import tempfile

from debian import Kernel, PackageError
from guest import Guest, GuestError, guest_image, require_qemu
from initramfs import ImageError

TOOL = "/usr/bin/contained_tool"
SKIPPED = 77  # as meson has it


def play(tool):
    kernel = Kernel()
    with tempfile.TemporaryDirectory(prefix="reseat-contained-") as folder:
        image = guest_image(kernel)
        image.add_file(tool, TOOL, 0o755)
        image.add_text("/etc/shadow", "root:!:1::::::\n", 0o600)
        image.add_folder("/root", 0o700)
        image.write(os.path.join(folder, "image"))
        with Guest(folder, os.path.join(folder, "image"), kernel, 256) as guest:
            guest.wait_boot()
            guest.check("chmod 1777 /dev/shm /tmp")
            for user in ("root", "user"):
                print(guest.check(f"{TOOL} {user}").decode(), end="")


def main():
    try:
        require_qemu()
        play(sys.argv[1])
    except PackageError as error:
        print(f"contained: {error}")
        sys.exit(SKIPPED)
    except (GuestError, ImageError) as error:
        sys.exit(f"contained: {error}")


main()
