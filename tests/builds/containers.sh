#!/bin/bash
# Programs in containers: containers.sh BUILD BUSY, as root
#
# The host's agent runs in the folders that systemd would make for it. A program is started in three kinds of
# container, whose files are this machine's: as rootless Podman (root there is a user here), Apptainer (the
# user keeps the number) and Docker (no user namespace) make them. The host sees it as its user's, takes it off
# its device and brings it back, and its result is right. What cannot work is said. crun is what Podman runs.
set -euo pipefail
build=$(realpath "$1") busy=$(realpath "$2")
reseat=$build/agent/reseat
[ "$(id -u)" -eq 0 ] || {
    echo "containers: root makes the host's folders"
    exit 77
}
# /run and the agent's folders are the test's own, in a mount namespace.
[ -n "${IN_NAMESPACE:-}" ] || IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"

USER_ID=64001 OTHER_ID=64002 SERVICE_ID=64010
fail() {
    echo "FAIL: $*"
    cat /run/test/agent.log
    exit 1
}
as() { # UID COMMAND...
    setpriv --reuid "$1" --regid "$1" --clear-groups env -u RESEAT_SOCKET -u POCL_CACHE_DIR HOME="/run/test/$1" XDG_RUNTIME_DIR="/run/test/$1" "${@:2}"
}
until_it() { # COMMAND...: within 60 s it succeeds
    for _ in {1..240}; do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.25
    done
    fail "never: $*"
}

for folder in /run /var/lib /var/cache /etc/OpenCL/vendors; do
    mount -t tmpfs -o mode=0755 host $folder
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup # crun wants nothing of it, but refuses a mixture of both versions.
echo libpocl.so.2 >/etc/OpenCL/vendors/pocl.icd
mkdir -p /run/reseat /var/lib/reseat /var/cache/reseat /run/test/{0,$USER_ID/reseat,$OTHER_ID,$SERVICE_ID,none,bundle/rootfs/usr}
chown $SERVICE_ID:$SERVICE_ID /run/reseat /var/lib/reseat /var/cache/reseat
for user in $USER_ID $OTHER_ID $SERVICE_ID; do
    chown -R "$user:$user" "/run/test/$user"
done
for name in bin lib lib64 sbin; do
    ln -s usr/$name /run/test/bundle/rootfs/$name
done
chmod 700 /run/test/$USER_ID/reseat
chown -R $USER_ID:$USER_ID /run/test/bundle/rootfs /run/test/none

as $SERVICE_ID "$build/agent/reseatd" --system >/run/test/agent.log 2>&1 &
trap 'touch /run/test/none/now; as 0 "$reseat" agent stop; wait' EXIT
until_it test -S /run/reseat/host.sock

container() { # RUNNER UID MAPS RUN COMMAND...: with /run/reseat from RUN; MAPS: "INSIDE OUTSIDE SIZE", or none
    /usr/bin/python3 - "$build" "$@" <<'END' >/run/test/bundle/config.json
import json
import os
import sys

build, runner, user, maps, run, *command = sys.argv[1:]
inside, outside, size = map(int, maps.split() or "000")
kinds = ["pid", "mount", "ipc", "uts", "network"] + ["user"] * bool(size)
mapping = [{"containerID": inside, "hostID": outside, "size": size}] if size else []
there = {path: path for path in ("/usr", "/etc", "/sys", os.path.dirname(build))} | {"/run/reseat": run}
mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
mounts += [{"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}
           for path in ("/tmp", "/dev", "/dev/shm")]
mounts += [{"destination": to, "type": "bind", "source": path, "options": ["rbind", "ro"]}
           for to, path in there.items()]
mounts += [{"destination": "/own", "type": "bind", "source": "/run/test/64001/reseat", "options": ["rbind"]}]
mounts += [{"destination": "/until", "type": "bind", "source": "/run/test/none", "options": ["bind"]}]
print(json.dumps({
    "ociVersion": "1.0.0", "hostname": "inside", "root": {"path": "rootfs"}, "mounts": mounts,
    "process": {"user": {"uid": int(user), "gid": int(user)}, "args": command, "cwd": "/", "noNewPrivileges": True,
                "env": ["PATH=/usr/bin:/bin", "HOME=/tmp", "TEST_UNTIL=/until/now", "POCL_CACHE_DIR=/until"]},
    "linux": {"namespaces": [{"type": kind} for kind in kinds], "uidMappings": mapping, "gidMappings": mapping}}))
END
    as "$1" crun --cgroup-manager=disabled --root "/run/test/$1/crun" run --bundle /run/test/bundle "c$BASHPID"
}
is_suspended() { # NAME
    as $USER_ID "$reseat" ps | grep -q "$1 .*suspended"
}
is_visible() { # NAME
    as $USER_ID "$reseat" ps | grep -q "$1 .*cpu0"
}

says() { # STATUS TEXT RUNNER UID MAPS RUN COMMAND...: what the command prints in a container, and how it ends
    local status=0
    container "${@:3}" >/run/test/out 2>&1 || status=$?
    if [ "$status" -ne "$1" ] || ! grep -q "$2" /run/test/out; then
        fail "$status: $(cat /run/test/out)"
    fi
}

for kind in podman apptainer docker; do
    rm -f /run/test/none/now
    case $kind in
    podman) where=("$USER_ID" 0 "0 $USER_ID 1") ;;
    apptainer) where=("$USER_ID" "$USER_ID" "$USER_ID $USER_ID 1") ;;
    docker) where=(0 "$USER_ID" "") ;;
    esac
    container "${where[@]}" /run/reseat "$reseat" run --name $kind -- "$busy" --mib 8 --rest 50 >/run/test/out &
    program=$!
    until_it grep -q ready /run/test/out
    until_it is_visible $kind
    as $OTHER_ID "$reseat" ps | grep -q $kind && fail "another user sees it"
    as $USER_ID "$reseat" suspend $kind
    is_suspended $kind || fail "$kind: not suspended"
    as $USER_ID "$reseat" resume $kind
    touch /run/test/none/now
    wait $program || fail "$kind: it ended with $?"
    grep -q 'every word is right' /run/test/out || fail "$kind: its result is wrong"
done

podman=("$USER_ID" 0 "0 $USER_ID 1")
says 0 'note  container: processes have other numbers' "${podman[@]}" /run/reseat "$reseat" doctor
says 0 "note  container: the host's agent is not here" "${podman[@]}" /run/test/none "$reseat" doctor
says 0 'note  drivers: cpu0 needs libpocl.so.2' "${podman[@]}" /run/reseat env OCL_ICD_VENDORS=/until "$reseat" doctor
says 0 "note  container: root here is root to the host's agent" 0 0 "" /run/reseat "$reseat" doctor
says 1 'stop  container: its user has the number of all' "$USER_ID" 65534 "65534 $USER_ID 1" /run/reseat "$reseat" doctor

# A user's own agent, by its folder.
as $USER_ID env RESEAT_SOCKET= "$reseat" agent start
own=(env RESEAT_SOCKET=/own/agent.sock "$reseat")
says 0 'theirs ' "${podman[@]}" /run/reseat "${own[@]}" run --name theirs -- "${own[@]}" ps
as $USER_ID env RESEAT_SOCKET= "$reseat" agent stop
