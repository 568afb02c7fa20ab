"""A guest with reseat in it, whose devices are those of device servers outside."""

import base64
import json
import os
import shlex
import subprocess
import time

from guest import GATEWAY, Guest, GuestError, guest_image
from initramfs import ImageError

PROGRAM, NAME = "/bin/solver", "solver"
OUTPUT, ERRORS, STATUS = "/tmp/output", "/tmp/errors", "/tmp/status"
LOG = "/tmp/log"
END = "/tmp/end"  # the step after which it is to end
ENVIRONMENT = "/etc/reseat-environment"
CREDENTIALS = "/root/.config/reseat/servers"
MOVE_SECONDS = 60
CRIU_MODULES = ("nfnetlink", "nf_tables", "nft_compat", "tun", "veth", "unix_diag", "tcp_diag",
                "udp_diag", "inet_diag", "netlink_diag", "af_packet_diag")
SERVER_SECONDS = 120  # for a handshake, and a list of devices, where the processor is a program
POLL_SECONDS = 0.5
INSTALL_SECONDS = 120


def install(build, folder):
    """What `meson install` installs, below @folder; nothing is built."""
    done = subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", folder],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=INSTALL_SECONDS)
    if done.returncode:
        raise ImageError(f"meson install: {done.stdout}")


def find_folder(tree, *names):
    """Where in @tree the folder is whose path ends with @names, as the guest sees it."""
    wanted = os.path.join("/", *names)
    for at, _, _ in os.walk(tree):
        if at.endswith(wanted):
            return "/" + os.path.relpath(at, tree)
    raise ImageError(f"{tree} has no folder {wanted}")


def find_library(name):
    """Where this machine's loader finds a library."""
    ldconfig = "/sbin/ldconfig"  # not on every user's path
    listed = subprocess.run([ldconfig, "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in listed.splitlines():
        words = line.split()
        if words and words[0] == name and "x86-64" in line:
            return words[-1]
    raise ImageError(f"{name} is not on this machine")


def tenant_image(kernel, build, folder, host, others, criu=None, modules=()):
    """
    The guest's image: reseat as it is installed, a program, the remote driver as the only OpenCL
    driver, and credentials for the @host, which runs. The names of @others lead to them, and that
    is all that the guest has of them.

    @criu     That program, to be there as well, with what it needs of the kernel.
    @modules  Of the kernel, to be loaded as well.
    """
    tree = os.path.join(folder, "installed")
    install(build, tree)
    image = guest_image(kernel, (*modules, *(CRIU_MODULES if criu else ())))
    if criu:
        image.add_file(criu, "/usr/sbin/criu", 0o755)
    image.add_tree(tree, leave_out=[os.path.join("usr", "local", "share")])
    image.add_file(os.path.join(build, "tests", "programs", "solver"), PROGRAM, 0o755)
    image.add_file(find_library("libgcc_s.so.1"))  # the C library opens it when a thread ends
    image.add_folder("/root", 0o700)
    image.add_folder(CREDENTIALS, 0o700)
    image.add_file(host.issue(), f"{CREDENTIALS}/{host.name}.pem", 0o600)
    names = " ".join(known.name for known in (host, *others))
    image.add_text("/etc/hosts", f"127.0.0.1 localhost guest\n{GATEWAY} {names}\n")
    image.add_text(ENVIRONMENT, f"export OCL_ICD_VENDORS={find_folder(tree, 'reseat', 'remote')}\n"
                                f"export RESEAT_SERVER=tcp:{host.name}:{host.port} "
                                f"RESEAT_LOG=warn:{LOG}\n")
    return image


class Tenant(Guest):
    """The guest, and the program in it."""

    def reseat(self, *arguments, seconds=60):
        """The JSON of a reseat command, before which it may have said something else."""
        command = shlex.join(["reseat", *arguments, "--json"])
        said = self.check(f". {ENVIRONMENT}; {command}", seconds)
        return json.loads(said[max(said.find(b"{"), 0):])

    def devices(self):
        """{the device's own name: what reseat calls it}"""
        self.check(f". {ENVIRONMENT}; reseat agent start >/dev/null")
        return {device["device"]: device["name"] for device in self.reseat("devices")["devices"]}

    def stop_agent(self):
        self.check(f". {ENVIRONMENT}; reseat agent stop >/dev/null")

    def add_server(self, host):
        """
        What an operator does for a host that reseat in the guest knows nothing of: its credentials
        are copied there, and `reseat server add`. Until its devices are listed; their names.
        """
        with open(host.issue(), "rb") as file:
            coded = base64.b64encode(file.read()).decode()
        self.check(f"umask 077; echo {coded} | base64 -d >{CREDENTIALS}/{host.name}.pem")
        server = self.reseat("server", "add", f"tcp:{host.name}:{host.port}", host.name)["server"]
        until = time.monotonic() + SERVER_SECONDS
        while server["state"] != "up":
            if time.monotonic() > until:
                raise GuestError(f"{host.name} was added, and is not used: {server}\n"
                                 + self.told())
            time.sleep(POLL_SECONDS)
            server, = (one for one in self.reseat("server", "list")["servers"]
                       if one["name"] == host.name)
        return server["devices"]

    def start(self, arguments, device):
        """The program, under reseat; each of its launches is one of the device's."""
        command = shlex.join(["reseat", "run", "--name", NAME, "--device", device, "--slice", "0",
                              "--", PROGRAM, *arguments, "--end", END])
        self.check(f". {ENVIRONMENT}; rm -f {STATUS} {END} {LOG}; "
                   f"(setsid {command} </dev/null >{OUTPUT} 2>{ERRORS}; echo $? >{STATUS}) "
                   ">/dev/null 2>&1 &")

    def output(self, skip=0):
        """(what it has printed so far, but for the first bytes; whether it has ended)"""
        status, text = self.run(f"[ -s {STATUS} ] && ended=1; tail -c +{skip + 1} {OUTPUT}; "
                                "exit ${ended:-0}", channel="watcher")
        return text, status == 1

    def move(self, device):
        """What reseat says of the move."""
        return self.reseat("move", NAME, device, "--timeout", str(MOVE_SECONDS),
                           seconds=MOVE_SECONDS + 20)

    def end_at(self, step):
        self.check(f"echo {step} >{END}.new && mv {END}.new {END}")

    def status(self):
        """The exit status of the program, which has ended."""
        return int(self.check(f"cat {STATUS}"))

    def was_late(self):
        """Whether reseat says of the program that a server did not answer in time."""
        return b"timed out" in self.check(f"cat {LOG} 2>/dev/null || true")

    def told(self):
        """What the program and reseat said, for who reads that something failed."""
        return self.run(f"tail {OUTPUT} {ERRORS} {LOG}")[1].decode(errors="replace")

    def held(self):
        """
        What the guest and the program have that could be a device: controllers of displays and
        accelerators, device files, and libraries and files that the program has open.
        """
        text = self.check(
            "for d in /sys/bus/pci/devices/*; do case $(cat $d/class) in "
            "0x03*|0x12*) echo pci $d;; esac; done; "
            "for d in /dev/dri /dev/kfd /dev/nvidia* /dev/accel; do [ -e $d ] && echo file $d; done; "
            f"p=$(pidof {os.path.basename(PROGRAM)}); [ -n \"$p\" ] || exit 1; "
            "sed -n 's/.* \\(\\/.*\\)/maps \\1/p' /proc/$p/maps | sort -u; "
            "for f in /proc/$p/fd/*; do echo open $(readlink $f); done").decode()
        found = {"pci": [], "file": [], "maps": [], "open": []}
        for line in text.splitlines():
            kind, _, what = line.partition(" ")
            found[kind].append(what)
        return found
