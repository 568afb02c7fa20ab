"""Debian's packages, unpacked in a cache: nothing is installed, no script of a package runs."""

import glob
import os
import shutil
import subprocess
import tempfile

KERNEL = "linux-image-cloud-amd64"  # always depends on the newest kernel of this flavour
DOWNLOAD_SECONDS = 300


class PackageError(Exception):
    """A package cannot be had here; says why and what to do."""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "reseat-tests-vm")


def _run(command, folder=None):
    try:
        return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
                              text=True, timeout=DOWNLOAD_SECONDS).stdout
    except FileNotFoundError as error:
        raise PackageError(f"there is no {command[0]} here: this needs Debian") from error
    except subprocess.TimeoutExpired as error:
        raise PackageError(f"{' '.join(command)} took more than {DOWNLOAD_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        raise PackageError(f"{' '.join(command)}: {error.stdout.strip()}") from error


def unpacked(package):
    """
    The folder in which @package's files are, as `usr/bin/…`.

    Kept in the cache. Several may ask at once: a folder is published whole.
    """
    cache = cache_folder()
    target = os.path.join(cache, package)
    if os.path.isdir(target):
        return target
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as folder:
        # apt's own user, which downloads when root asks, may not be allowed into this folder.
        _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package], folder)
        found = glob.glob(os.path.join(folder, "*.deb"))
        if len(found) != 1:
            raise PackageError(f"apt-get download {package} brought {len(found)} packages")
        tree = os.path.join(folder, "tree")
        _run(["dpkg-deb", "-x", found[0], tree])
        try:
            os.rename(tree, target)
        except OSError:
            if not os.path.isdir(target):  # else somebody else was first
                raise
    return target


def _newest_kernel():
    """The package that KERNEL stands for; None where apt knows none."""
    for line in _run(["apt-cache", "depends", KERNEL]).splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith("linux-image-"):
            return name
    return None


class Kernel:
    """A kernel for a guest, and its modules."""

    def __init__(self):
        try:
            package = _newest_kernel()
            tree = unpacked(package) if package else None
        except PackageError as error:
            tree, why = None, str(error)
        else:
            why = f"apt knows no {KERNEL}"
        if not tree:
            # Without a network, what was unpacked before does as well.
            known = sorted(glob.glob(os.path.join(cache_folder(), "linux-image-*-cloud-*")),
                           key=os.path.getmtime)
            if not known:
                raise PackageError(f"no kernel for the guest: {why} (as root: apt-get update)")
            tree = known[-1]
        self.image = self._one(tree, "boot/vmlinuz-*")
        self.version = os.path.basename(self.image).removeprefix("vmlinuz-")
        self.modules = {}
        root = os.path.join(tree, "lib", "modules", self.version)
        for folder, _, names in os.walk(root):
            for name in names:
                if name.endswith(".ko"):
                    self.modules[self._plain(name[:-3])] = os.path.join(folder, name)

    @staticmethod
    def _one(tree, pattern):
        found = glob.glob(os.path.join(tree, pattern))
        if len(found) != 1:
            raise PackageError(f"{tree} has {len(found)} files {pattern}: remove that folder")
        return found[0]

    @staticmethod
    def _plain(name):
        """The kernel takes - and _ in names of modules for the same."""
        return name.replace("-", "_")

    def with_needed(self, names):
        """Files of the modules @names and of what they need, in the order to load them in."""
        ordered = []

        def take(name, chain):
            path = self.modules.get(self._plain(name))
            if not path:
                raise PackageError(f"kernel {self.version} has no module {' for '.join(chain)}")
            if path in ordered:
                return
            with open(path, "rb") as file:
                text = file.read()
            # From the module's own table of "key=value" strings.
            _, _, after = text.partition(b"\0depends=")
            for needed in after.partition(b"\0")[0].decode("ascii").split(","):
                if needed:
                    take(needed, [needed, *chain])
            ordered.append(path)

        for name in names:
            take(name, [name])
        return ordered


def busybox():
    """A BusyBox that needs no library."""
    path = shutil.which("busybox")
    if not path:
        raise PackageError("there is no busybox: install busybox-static")
    if "not a dynamic executable" not in subprocess.run(
            ["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=dict(os.environ, LC_ALL="C")).stdout:
        raise PackageError(f"{path} needs libraries: install busybox-static")
    return path
