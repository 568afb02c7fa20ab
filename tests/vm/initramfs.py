"""An initramfs: programs, files and packages, with the libraries that they need."""

import os
import stat
import subprocess

# As on Debian: what is said to be in /bin is in /usr/bin.
MERGED = ("bin", "sbin", "lib", "lib64")
ELF_EXECUTABLE, ELF_SHARED = 2, 3
ZEROS = b"\0\0\0"


class ImageError(Exception):
    """The image cannot be made; says of which file."""


def _place(path):
    """Where @path of a Debian machine is in the image: usr/lib/… for /lib/…"""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise ImageError(f"{path!r} is no place in an image")
    return "/".join(["usr", *parts] if parts[0] in MERGED else parts)


class Entry:
    """What is at one place: bytes, a file of this machine, a link's target, or nothing more."""

    def __init__(self, mode, content=b"", source=None):
        self.mode, self.content, self.source = mode, content, source

    def read(self):
        if not self.source:
            return self.content
        with open(self.source, "rb") as file:
            return file.read()


def _kind_of_elf(path):
    """ELF's e_type; None for what is no ELF file."""
    with open(path, "rb") as file:
        head = file.read(18)
    return head[16] if len(head) == 18 and head.startswith(b"\x7fELF") else None


class Image:
    """
    A tree in the making; all files are root's. The last word at a place counts.

    Libraries are looked for when the image is written: as the machine's own loader finds them, and
    in the folders of libraries of what was added by add_tree().
    """

    def __init__(self):
        self.entries = {}
        self.library_folders = []
        self.entries["."] = Entry(stat.S_IFDIR | 0o755)  # the kernel's own root is open to all
        for name in MERGED:
            self.add_link(name, "usr/" + name)
            self.add_folder("usr/" + name)

    def _put(self, place, entry):
        parent = os.path.dirname(place)
        if parent and parent not in self.entries:
            self._put(parent, Entry(stat.S_IFDIR | 0o755))
        self.entries[place] = entry

    def add_folder(self, path, mode=0o755):
        self._put(_place(path), Entry(stat.S_IFDIR | mode))

    def add_link(self, path, target):
        place = path if path in MERGED else _place(path)
        self._put(place, Entry(stat.S_IFLNK | 0o777, os.fsencode(target)))

    def add_text(self, path, text, mode=0o644):
        self._put(_place(path), Entry(stat.S_IFREG | mode, text.encode()))

    def add_file(self, source, path=None, mode=None):
        """A file of this machine, at @path or at its own place, with its own mode or @mode."""
        try:
            found = os.stat(source)
        except OSError as error:
            raise ImageError(f"{source}: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise ImageError(f"{source} is no file")
        own = stat.S_IMODE(found.st_mode) & 0o755 if mode is None else mode
        self._put(_place(path or source), Entry(stat.S_IFREG | own, source=source))

    def add_tree(self, folder, leave_out=()):
        """All that is below @folder: an unpacked package, or an installation's DESTDIR."""
        folder = os.path.abspath(folder)
        for at, folders, names in os.walk(folder):
            here = os.path.relpath(at, folder)
            folders[:] = [name for name in folders
                          if os.path.normpath(os.path.join(here, name)) not in leave_out]
            libraries = any(".so" in name for name in names)
            if libraries and at not in self.library_folders:
                self.library_folders.append(at)
            for name in names + [name for name in folders if os.path.islink(os.path.join(at, name))]:
                source = os.path.join(at, name)
                place = os.path.join(here, name)
                if os.path.islink(source):
                    self.add_link(place, os.readlink(source))
                else:
                    self.add_file(source, place)

    def _libraries(self, source):
        """[(name, file)] of the libraries that the ELF file @source needs."""
        paths = [path for path in self.library_folders + [os.environ.get("LD_LIBRARY_PATH")] if path]
        done = subprocess.run(["ldd", source], check=False, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=dict(os.environ, LC_ALL="C", LD_LIBRARY_PATH=":".join(paths)))
        if "not a dynamic executable" in done.stdout or "statically linked" in done.stdout:
            return []
        if done.returncode:
            raise ImageError(f"ldd {source}: {done.stdout.strip()}")
        found = []
        for line in done.stdout.splitlines():
            words = line.split()
            if "not found" in line:
                raise ImageError(f"{source} needs {words[0]}, which is not on this machine")
            if len(words) >= 3 and words[1] == "=>":
                found.append((words[0], words[2]))
            elif words and words[0].startswith("/"):  # the loader
                found.append((os.path.basename(words[0]), words[0]))
        return found

    def add_libraries(self):
        """What the programs and libraries in the image need; found once, used by each."""
        for entry in list(self.entries.values()):
            if not entry.source or _kind_of_elf(entry.source) not in (ELF_EXECUTABLE, ELF_SHARED):
                continue
            for _, library in self._libraries(entry.source):
                inside = any(library.startswith(folder + "/") for folder in self.library_folders)
                if not inside and _place(library) not in self.entries:
                    self.add_file(library)

    def write(self, path):
        """As an archive that the kernel unpacks: cpio's "newc"."""
        self.add_libraries()
        with open(path, "wb") as archive:
            for number, place in enumerate(sorted(self.entries), start=1):
                entry = self.entries[place]
                links = 2 if stat.S_ISDIR(entry.mode) else 1
                self._record(archive, number, place, entry.mode, links, entry.read())
            self._record(archive, 0, "TRAILER!!!", 0, 1, b"")

    @staticmethod
    def _record(archive, number, place, mode, links, content):
        name = os.fsencode(place) + b"\0"
        fields = (number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
        archive.write(head + ZEROS[:-len(head) % 4] + content + ZEROS[:-len(content) % 4])
