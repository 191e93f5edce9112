#!/usr/bin/env bash
# A real Ceph cluster on this machine, for tests and trials: one monitor, one manager and three OSDs (BlueStore on sparse
# files of 4 GiB), with cephx on. All of its state is in DIR, its ports are on 127.0.0.1, and no system service is touched.
#
#   scripts/ceph-mini.sh start DIR   makes the cluster, and prints the path of its ceph.conf
#   scripts/ceph-mini.sh stop DIR    ends its daemons, and removes what start made
#   scripts/ceph-mini.sh kill DIR N  kills OSD N
#   scripts/ceph-mini.sh osd DIR N   starts OSD N again
#   scripts/ceph-mini.sh memory DIR  prints the resident memory of the daemons
#
# The cluster has the pool 'rbd', and two users: client.admin, and client.extant with the profile of rbd alone. It needs
# Debian's packages ceph-mon, ceph-mgr, ceph-osd and ceph-common.
set -euo pipefail

usage() {
    sed -n '5,9s/^# *//p' "$0" >&2
    exit 2
}
[ $# -ge 2 ] || usage
command=$1
dir=$(realpath -m "$2")
conf=$dir/ceph.conf
export CEPH_CONF=$conf
unset CEPH_ARGS
log=$dir/start.log

# Runs a command with its output in the log, which is printed if the command fails.
quietly() {
    "$@" >>"$log" 2>&1 || { printf '%s failed:\n' "$1" >&2; tail -20 "$log" >&2; return 1; }
}

# Returns a port that is free, and so is the next one.
free_ports() {
    python3 - <<'PYTHON'
import random, socket
while True:
    port = random.randrange(20000, 32000, 2)
    try:
        for p in (port, port + 1):
            with socket.socket() as s:
                s.bind(("127.0.0.1", p))
    except OSError:
        continue
    print(port)
    break
PYTHON
}

# Starts a daemon in the background; its log is in DIR, and its process id in DIR/NAME.pid.
daemon() {
    local name=$1
    shift
    setsid "$@" --foreground >>"$dir/$name.log" 2>&1 </dev/null &
    echo $! >"$dir/$name.pid"
}

# Ends the daemon with a signal, and waits for its end.
end() {
    local file=$dir/$1.pid pid
    [ -f "$file" ] || return 0
    pid=$(cat "$file")
    # A process of another program may have the number by now.
    if grep -qs -- "$dir" "/proc/$pid/cmdline"; then
        kill "-$2" "$pid" || true
        for _ in $(seq 100); do
            [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null || break
            sleep 0.1
        done
        [ ! -d "/proc/$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$file"
}

write_conf() {
    local port=$1
    cat >"$conf" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = $dir/keyring
run dir = $dir
admin socket = $dir/\$name.asok
log to file = false
log to stderr = true
err to stderr = true
mon cluster log to file = false
pid file =
crash dir = $dir/crash
# Three replicas on one machine, of which two are enough to write.
osd crush chooseleaf type = 0
osd pool default size = 3
osd pool default min size = 2
osd pool default pg autoscale mode = off
mon allow pool delete = true
mon osd min down reporters = 1
mon data avail warn = 1
mon data avail crit = 1
osd heartbeat grace = 6
osd heartbeat interval = 1
# A client that was killed is known to be dead after this time.
osd client watch timeout = 5
ms bind ipv6 = false
# Little memory.
osd memory target = 939524096
bluestore cache autotune = false
bluestore cache size = 33554432
osd op num shards = 1
osd op num threads per shard = 2
osd pg max concurrent snap trims = 1
ms async op threads = 1
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
[mon]
mon data = $dir/mon
keyring = $dir/mon/keyring
[mgr]
mgr data = $dir/mgr
keyring = $dir/mgr/keyring
mgr initial modules = none
[osd]
osd data = $dir/osd\$id
keyring = $dir/osd\$id/keyring
osd objectstore = bluestore
bluestore block size = 4294967296
bluestore block create = true
bluestore fsck on mount = false
CONF
}

make_monitor() {
    local port=$1 fsid
    fsid=$(sed -n 's/^fsid = //p' "$conf")
    mkdir "$dir/mon"
    quietly ceph-authtool --create-keyring "$dir/keyring" --gen-key -n client.admin \
        --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
    quietly ceph-authtool "$dir/keyring" --gen-key -n client.extant --cap mon 'profile rbd' --cap osd 'profile rbd' --cap mgr 'profile rbd'
    quietly ceph-authtool --create-keyring "$dir/mon.keyring" --gen-key -n mon. --cap mon 'allow *'
    quietly ceph-authtool "$dir/mon.keyring" --import-keyring "$dir/keyring"
    quietly monmaptool --create --addv a "[v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]" --fsid "$fsid" "$dir/monmap"
    quietly ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/mon.keyring" -c "$conf"
}

start_osd() {
    daemon "osd$1" ceph-osd -i "$1" -c "$conf"
}

make_osd() {
    local n=$1 uuid secret
    uuid=$(cat /proc/sys/kernel/random/uuid)
    secret=$(ceph-authtool --gen-print-key)
    mkdir "$dir/osd$n"
    quietly ceph-authtool --create-keyring "$dir/osd$n/keyring" --name "osd.$n" --add-key "$secret"
    printf '{"cephx_secret": "%s"}' "$secret" >"$dir/osd$n.json"
    quietly ceph osd new "$uuid" "$n" -i "$dir/osd$n.json"
    rm "$dir/osd$n.json"
    quietly ceph-osd -i "$n" --mkfs --osd-uuid "$uuid" --monmap "$dir/monmap" -c "$conf"
}

make_cluster() {
    local port n
    port=$(free_ports)
    write_conf "$port"
    make_monitor "$port"
    daemon mon ceph-mon -i a -c "$conf"
    quietly ceph --connect-timeout 60 mon stat
    mkdir "$dir/mgr"
    ceph auth get-or-create mgr.x mon 'allow profile mgr' osd 'allow *' mds 'allow *' >"$dir/mgr/keyring" 2>>"$log"
    daemon mgr ceph-mgr -i x -c "$conf"
    for n in 0 1 2; do make_osd "$n"; done
    for n in 0 1 2; do start_osd "$n"; done
    quietly ceph osd pool create rbd 8
    quietly ceph osd pool application enable rbd rbd
    wait_active
    quietly rbd pool init rbd
}

# Waits until every placement group takes writes.
wait_active() {
    local state=
    for _ in $(seq 300); do
        state=$(ceph osd stat 2>>"$log" || true)
        case $state in
        *"3 osds: 3 up"*)
            # A write to the pool waits until its placement group takes writes.
            if timeout 20 rados -p rbd put extant-probe "$conf" >>"$log" 2>&1; then
                quietly rados -p rbd rm extant-probe
                return
            fi
            ;;
        esac
        sleep 0.2
    done
    echo "the OSDs do not come up: $state" >&2
    return 1
}

case $command in
start)
    for tool in ceph-mon:ceph-mon ceph-mgr:ceph-mgr ceph-osd:ceph-osd ceph:ceph-common rbd:ceph-common; do
        command -v "${tool%%:*}" >/dev/null || { echo "missing: ${tool%%:*} (Debian package ${tool##*:})" >&2; exit 1; }
    done
    [ ! -f "$conf" ] || { echo "$dir has a cluster: $0 stop $dir" >&2; exit 1; }
    mkdir -p "$dir"
    make_cluster
    echo "$conf"
    ;;
stop)
    for name in osd0 osd1 osd2 mgr mon; do end "$name" KILL; done
    rm -rf "$dir/mon" "$dir/mgr" "$dir"/osd[012] "$dir/crash"
    rm -f "$conf" "$dir"/{keyring,mon.keyring,monmap} "$dir"/*.log "$dir"/*.asok
    rmdir "$dir" 2>/dev/null || true
    ;;
kill)
    end "osd${3:?}" KILL
    ;;
osd)
    start_osd "${3:?}"
    ;;
memory)
    for name in mon mgr osd0 osd1 osd2; do
        printf '%s %s kB\n' "$name" "$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$(cat "$dir/$name.pid")/status")"
    done
    ;;
*) usage ;;
esac
