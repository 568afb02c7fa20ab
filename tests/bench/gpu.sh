#!/bin/bash
# On a machine with a GPU and none of Debian's packages, from the folder that scripts/bundle made:
#
#   ./gpu.sh [--gpu DEVICE] [--cpu DEVICE] [--mib N[,N...]] [--only STEP[,STEP...]] [--json FILE]
#
# Steps, all by default: solver (a program moved GPU -> CPU -> GPU while it computes, its results
# checked), calls (what each costs), spill, transfer (extraction and injection, and each device's
# link), pipeline, links, moves (time, downtime and bytes of each, for each size of state: 1 and 8
# GiB), suspends (beside the driver's own), slices (what pieces of launches cost, and how long moves
# wait for them), elastic (launches on several devices), spector (its eight kernels, moved in the
# middle of launches of half a second, to another such GPU or out and in again; figures also in FILE),
# isolate (calls, transfers, a solver and x264 with the driver in another process, beside native ones; of the
# first device of $ISOLATE_ICD, nvidia.icd by default), overhead (x264 under reseat, by pairs of runs),
# protect (what protection and images cost, with the last size; all its parts, or those that
# $PROTECT_PARTS names, with commas).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gpu='' cpu='' sizes=1024,8192 only='' json=''
while [ $# -gt 0 ]; do
    case $1 in
    --gpu) gpu=$2 && shift 2 ;;
    --cpu) cpu=$2 && shift 2 ;;
    --mib) sizes=$2 && shift 2 ;;
    --only) only=$2 && shift 2 ;;
    --json) json=$2 && shift 2 ;;
    *)
        sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done

work=$(mktemp -d)
bad=0
finish() {
    "$here/bin/reseat" agent stop >/dev/null 2>&1
    rm -rf "$work"
}
trap finish EXIT
export PATH=$here/bin:$PATH LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ldconfig -p | grep -q 'libssl\.so\.3 ' || LD_LIBRARY_PATH+=:$here/lib/openssl
export XDG_RUNTIME_DIR=$work/run RESEAT=$here/bin/reseat PROGRAMS=$here/bin
export POCL_CACHE_DIR=$work/pocl-cache OCL_ICD_VENDORS=$work/vendors POCL_DEVICES=${POCL_DEVICES:-pthread}
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir "$OCL_ICD_VENDORS" "$POCL_CACHE_DIR"
cp /etc/OpenCL/vendors/*.icd "$OCL_ICD_VENDORS" 2>/dev/null
[ -e "$OCL_ICD_VENDORS/nvidia.icd" ] || echo libnvidia-opencl.so.1 >"$OCL_ICD_VENDORS/nvidia.icd"

if [ -f "$here/pocl.tar.xz" ]; then
    mkdir "$work/pocl"
    tar -C "$work/pocl" -xf "$here/pocl.tar.xz"
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$work/pocl/lib
    # libpocl looks for its data where Debian puts it; nothing that is there is replaced.
    [ -e /usr/share/pocl ] || cp -rn "$work/pocl/usr" /
    echo libpocl.so.2 >"$OCL_ICD_VENDORS/pocl.icd"
fi

echo "machine: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), $(nproc) cores"
command -v nvidia-smi >/dev/null &&
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
reseat agent start
reseat devices || exit 1
names=$(reseat devices --json | tr ',{' '\n\n' | sed -n 's/.*"name": *"\([a-z0-9-]*\)".*/\1/p')
gpu=${gpu:-$(grep -m1 '^gpu' <<<"$names")}
cpu=${cpu:-$(grep -m1 '^cpu' <<<"$names")}
if [ -z "$gpu" ] || { [ -z "$cpu" ] && [ "$only" != isolate ]; }; then
    echo "gpu.sh: needs a GPU and a CPU device (--gpu, --cpu), found: ${names//$'\n'/ }" >&2
    exit 1
fi

step() { # STEP NAME COMMAND...
    [ -z "$only" ] || [[ ,$only, == *,$1,* ]] || return 0
    echo "== $2"
    shift 2
    "$@" || {
        echo "FAILED: $*" >&2
        bad=1
    }
}

to_and_fro() { # a solver that computes all the time, moved three times each way
    local until=$work/until turn device
    TEST_UNTIL=$until reseat run --name fro --device "$gpu" -- \
        solver --mib 64 --steps 200 --every 0 --tiles 20 >"$work/fro" &
    local pid=$!
    sleep 3
    for turn in 1 2 3; do
        for device in "$cpu" "$gpu"; do
            echo "move $turn"
            reseat move fro "$device" --timeout 120 || return 1
            sleep 1
        done
    done
    touch "$until"
    wait "$pid" && cat "$work/fro"
}

step solver "solver natively" solver --mib 64 --steps 200 --every 0 --tiles 20
step solver "solver, $gpu -> $cpu -> $gpu while it computes" to_and_fro
step calls "calls on $gpu" bench-calls --runs 3
step spill "spilling on $gpu" bench-spill --real --mib 512
step transfer "extraction and injection, and each device's link" transfer_bench ${sizes//,/ }
step pipeline "the transfer pipeline" transfer_bench --pipeline 1024
step links "links" reseat devices --links --measure
for mib in ${sizes//,/ }; do
    step moves "$mib MiB between $gpu and $cpu" \
        bench-moves --mib "$mib" --runs 2 --from "$gpu" --to "$cpu" --buffers 10000
    step moves "$mib MiB between $gpu and $cpu, a hundredth rewritten all the time" \
        bench-moves --mib "$mib" --runs 2 --from "$gpu" --to "$cpu" --busy 1
done
peer='' beside=''
command -v nvidia-smi >/dev/null && peer=--peer beside=", beside the driver's own"
step suspends "suspends and resumes of $gpu, part by part$beside" \
    "$here/suspends.py" --device "$gpu" --mib "$sizes" --runs 2 $peer
another=$(grep '^gpu' <<<"$names" | grep -vxm1 "$gpu")
step slices "launches in pieces on $gpu" \
    bench-slices --kinds compute,memory,places --ms 500 --mib 4096 --from "$gpu" \
    ${another:+--to "$another"}
step slices "a launch of 10 s on $gpu, moved in its middle" \
    bench-slices --kinds compute --ms 10000 --pairs 0 --runs 1 --from "$gpu" \
    ${another:+--to "$another"}
[ -z "$another" ] || step elastic "launches of 2 s on $gpu and $another" \
    "$here/elastic.py" --vendors system --from "$gpu" --over "$another" -- --ms 2000 --items 34603008
step elastic "launches of 2 s on $gpu and $cpu" \
    "$here/elastic.py" --vendors system --from "$gpu" --over "$cpu" --stays -- --ms 2000
step spector "Spector's kernels on $gpu" \
    "$here/spector.py" --from "$gpu" --size large --seconds 0.5 --moves 3 \
    ${SPECTOR_KERNELS:+--kernels "$SPECTOR_KERNELS"} ${json:+--json "$json"}
isolation() {
    local icd=$OCL_ICD_VENDORS/${ISOLATE_ICD:-nvidia.icd}
    OCL_ICD_VENDORS=$icd "$here/isolate.py" --bench "$here/bin/bench-isolate" \
        --serve "$here/bin/reseat-serve" --driver "$here/bin/libreseat-remote.so" \
        --program solver "$here/bin/solver --mib 1024 --active 64 --steps 5000 --every 0 --tiles -1" \
        --program x264 "$here/bin/bench-encode 1000 $work/x264.clbin" \
        --reseat "$here/bin/reseat" --device "$gpu" --rounds 3
}
step isolate "what isolation costs on $gpu" isolation
step overhead "x264 under reseat on $gpu" \
    "$here/paired.py" --device "$gpu" --published 5.25 -- "$here/bin/bench-encode" 1000 "$work/x264.clbin"
step protect "what protection and images cost on $gpu" \
    env RESEAT_SERVE="$here/bin/reseat-serve" RESEAT_REMOTE="$here/bin/libreseat-remote.so" \
    "$here/protect.py" --device "$gpu" --mib "${sizes##*,}" --solver-mib 1024 --steps 100000 --rounds 2 \
    ${PROTECT_PARTS:+--only "$PROTECT_PARTS"}
exit $bad
