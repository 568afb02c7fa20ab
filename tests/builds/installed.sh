#!/bin/bash
# The packages on a machine of their own, as root: installed.sh FOLDER
#
# FOLDER has the packages, and the program busy of tests/programs. While it runs they are upgraded, removed and purged:
# it is moved by both releases, goes on without any, and its result is right. scripts/fresh makes the machine.
set -euo pipefail
folder=$1
cd /
export DEBIAN_FRONTEND=noninteractive

step() { echo "== $*"; }
fail() {
    echo "FAIL: $*"
    exit 1
}
as() { # USER COMMAND...
    runuser -u "$1" -- env HOME="$(getent passwd "$1" | cut -d: -f6)" POCL_DEVICES="basic pthread" TEST_UNTIL=/home/user/until "${@:2}"
}
until_it() { # COMMAND...: within 60 s it succeeds
    for _ in {1..600}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "never: $*"
}
is_on() { # DEVICE
    as user reseat ps | grep -q "busy .*$1"
}

step install
apt-get update -q
apt-get install -y -q --no-install-recommends pocl-opencl-icd systemd-standalone-sysusers systemd-standalone-tmpfiles \
    "$folder"/*.deb
useradd --create-home user
as user reseat doctor
as user reseat devices

step use
as user reseat run --name busy --device cpu0 -- "$folder/busy" --mib 8 --rest 20 >/home/user/out &
program=$!
until_it grep ready /home/user/out
as user reseat move busy cpu1
is_on cpu1 || fail "it was not moved"
as user env -u TEST_UNTIL reseat run --isolate --device cpu0 -- "$folder/busy" --mib 8 | grep right

step service # what doc/operating.md says of one, without systemd
export RESEAT_SOCKET=/run/render/agent.sock
install -d -o user -m 700 /run/render
as user reseat agent start
reseat --user user devices | grep cpu1
as user reseat agent stop
unset RESEAT_SOCKET

step host # the lines of the host's units, without systemd
[ "$(stat -c '%U %a' /run/reseat)" = '_reseatd 755' ] || fail "the agent's folder is not its user's"
install -d -o _reseatd -m 700 /var/lib/reseat /var/cache/reseat
as _reseatd bash -c "exec $(sed -n 's/^ExecStart=//p' /lib/systemd/system/reseatd.service)" &
host=$!
until_it test -S /run/reseat/host.sock
useradd --create-home other
as other env -u TEST_UNTIL reseat run --name other -- "$folder/busy" --mib 8 | grep right
reseat agent status | grep journalctl
reseat agent stop # root's right
wait $host
[ ! -e /run/reseat/host.sock ] || fail "its socket is still there"

step stream
as user reseat stream serve &
until_it test -S "/tmp/reseat-$(id -u user)/stream.sock"
answer=$(head -c 16 /dev/zero | as user reseat stream run aes --constant key=00000000000000000000000000000000 | od -An -tx1)
[ "${answer// /}" = 66e94bd4ef8a2c3b884cfa59ca342b2e ] || fail "AES of zeros is $answer"

step server
ca=/var/lib/reseat-serve/ca
[ "$(stat -c '%U %a' /var/lib/reseat-serve)" = '_reseat 700' ] || fail "the server's state is not its user's"
as _reseat reseat serve --ca $ca --init-ca
as _reseat reseat serve --ca $ca --issue user --out /var/lib/reseat-serve/user.pem
install -o user -m 600 /var/lib/reseat-serve/user.pem /home/user/user.pem
# The unit's own line and environment; there is no systemd here.
unit=/lib/systemd/system/reseat-serve.service
install -d -o _reseat -m 700 /run/reseat-serve /var/cache/reseat-serve
# shellcheck disable=SC2046
as _reseat env $(sed -n 's/^Environment=//p' $unit) LISTEN=tcp:127.0.0.1:7460 \
    bash -c "exec $(sed -n 's/^ExecStart=//p' $unit)" &
# shellcheck disable=SC2016
as user env -u TEST_UNTIL OCL_ICD_VENDORS="$(echo /usr/lib/*/reseat/remote)" RESEAT_CREDENTIALS=/home/user/user.pem \
    RESEAT_SERVER=tcp:127.0.0.1:7460 bash -c 'for _ in {1..100}; do "$0" --mib 8 2>/dev/null && exit; sleep 0.1; done' "$folder/busy" |
    grep right

step upgrade
mkdir /srv/newer
for deb in "$folder"/*.deb; do
    case $deb in *dbgsym*) continue ;; esac
    dpkg-deb --raw-extract "$deb" /srv/raw
    sed -i -E "/^(Version|Depends):/s/$(dpkg-deb --field "$deb" Version)/&+1/g" /srv/raw/DEBIAN/control
    dpkg-deb --root-owner-group -Znone --build /srv/raw /srv/newer >/dev/null
    rm -r /srv/raw
done
dpkg -i /srv/newer/*.deb
grep -q 'libreseat.so (deleted)' "$(dirname "$(grep -lsx busy /proc/[0-9]*/comm)")/maps" || fail "it does not have the library that it began with"
as user reseat move busy cpu0
is_on cpu0 || fail "it was not moved after the upgrade"
as user reseat agent stop
as user reseat agent start
until_it as user reseat move busy cpu1
is_on cpu1 || fail "the new agent has not moved it"

step remove
apt-get purge -y -q '*reseat*'
left=$(find / -xdev \( -path /home -o -path /srv -o -path /tmp -o -path /run \) -prune -o -name '*reseat*' -print)
[ -z "$left" ] || fail "left behind: $left"
kill -0 $program || fail "it ended as the packages were removed"
touch /home/user/until
wait $program || fail "it ended with $?"
grep -q 'every word is right' /home/user/out || fail "its result is wrong"
echo "installed: all is right"
