#!/usr/bin/env bash
# A Debian root file system that `extant mkfs --from` made boots to a login, in QEMU by software emulation, and Debian's
# kernel and extant each read files that the other wrote:
#
#   mmdebstrap makes an archive of a minimal Debian; extant makes an image of it; host name, fstab and password are
#   written through a mount of extant's; Debian's cloud kernel boots it with systemd; a script logs in on the serial
#   line, writes a file and powers off; e2fsck finds no error, and extant reads the file.
#
# boot-debian.sh --web boots the image from a web server instead, and boot-debian.sh --s3 from an object store, through extant-remote with
# an empty cache. They print the requests and bytes that the server sent. The writes of the machine go to a file of QEMU's. The store is moto
# (moto_server: `scripts/test-remote.sh --tools` installs it).
#
# Needs root (mmdebstrap and the mount), mmdebstrap, qemu-system-x86, busybox-static, and a mirror of Debian. EXTANT=file
# names the command to test. The archive is kept below ${XDG_CACHE_HOME:-~/.cache}/extant-qemu for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

extant=${EXTANT:-target/release/extant}
remote=${EXTANT_REMOTE:-$(dirname "$extant")/extant-remote}
case ${1:-} in
    '' | --web | --s3) from=${1:-} ;;
    *) echo "usage: boot-debian.sh [--web|--s3]" >&2; exit 2 ;;
esac
work=$(mktemp -d)
machine=
started=()
end() {
    local process
    for process in $machine "${started[@]}"; do
        kill "$process" 2>/dev/null || true
    done
    mountpoint -q "$work/mnt" && umount -l "$work/mnt"
    rm -rf "$work"
}
trap end EXIT

fail() {
    echo "boot-debian.sh: $*" >&2
    [ ! -e "$work/serial" ] || tail -40 "$work/serial" >&2
    exit 1
}
say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }

# Waits for a text on the serial line.
hear() {
    local end=$((SECONDS + $2))
    until grep -aq "$1" "$work/serial"; do
        [ $SECONDS -lt $end ] || fail "the machine does not say \"$1\""
        kill -0 "$machine" 2>/dev/null || fail "the machine ended before it said \"$1\""
        sleep 0.2
    done
    say "the machine says \"$1\""
}

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/extant-qemu
rootfs=$cache/debian-${SUITE:-bookworm}.tar
if [ ! -e "$rootfs" ]; then
    mkdir -p "$cache"
    mmdebstrap --quiet --variant=minbase --include=systemd-sysv,login,udev "${SUITE:-bookworm}" "$work/debian.tar" \
        "${MIRROR:-http://deb.debian.org/debian}"
    mv "$work/debian.tar" "$rootfs"
    say "mmdebstrap made a root file system"
fi

"$extant" mkfs "$work/root.img" --from "$rootfs" --size 1G -L debian
say "extant mkfs --from made an image of it"
mkdir "$work/mnt"
"$extant" mount "$work/root.img" "$work/mnt"
echo made-by-extant >"$work/mnt/etc/hostname"
echo "/dev/vda / ext4 defaults 0 1" >"$work/mnt/etc/fstab"
sed -i 's/^root:[^:]*:/root::/' "$work/mnt/etc/shadow"
ln -sf /dev/null "$work/mnt/etc/systemd/system/systemd-timesyncd.service"
"$extant" umount "$work/mnt"
e2fsck -fn "$work/root.img" >/dev/null 2>&1 || fail "e2fsck finds fault with what was made"
say "a mount of extant's wrote host name, fstab and password"

# A web server for the image, which sends ranges and counts what it sends.
serve() {
    exec python3 -c '
import http.server, os, re, sys
image, counts = sys.argv[1], sys.argv[2]
requests = sent = 0
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_HEAD(self): self.do_GET()
    def do_GET(self):
        global requests, sent
        size = os.path.getsize(image)
        wanted = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        last = min(int(wanted[2] or size) if wanted else size, size - 1)
        self.send_response(206 if wanted else 200)
        if wanted: self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", "\"golden\"")
        self.end_headers()
        requests += 1
        if self.command == "GET":
            sent += last - first + 1
            with open(image, "rb") as file:
                file.seek(first)
                self.wfile.write(file.read(last - first + 1))
        with open(counts, "w") as file: file.write(f"{requests} {sent}\n")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()' "$1" "$2"
}

# A way to the store at a port of this machine, which makes a bucket there, and counts gets, lists, other requests and the bytes of answers.
pass_on() {
    exec python3 -c '
import http.client, http.server, os, sys, threading
store, counts = int(sys.argv[1]), sys.argv[2]
gets = lists = others = sent = 0
lock = threading.Lock()
def count(method, path, length):
    global gets, lists, others, sent
    with lock:
        if "list-type" in path: lists += 1
        elif method == "GET": gets += 1
        else: others += 1
        sent += length
        with open(counts + ".new", "w") as file: file.write(f"{gets} {lists} {others} {sent}\n")
        os.rename(counts + ".new", counts)
def ask(method, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", store)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer, answer.read()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer, data = ask(self.command, self.path, body, dict(self.headers))
        count(self.command, self.path, len(data))
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"): self.send_header(name, value)
        length = answer.headers["Content-Length"] if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on
ask("PUT", "/bucket", None, {})
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()' "$1" "$2"
}

disk=file=$work/root.img,cache=writeback
if [ -n "$from" ]; then
    case $from in
        --web) serve "$work/root.img" "$work/counts" >"$work/port" & ;;
        --s3)
            moto=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
            moto_server -H 127.0.0.1 -p "$moto" >/dev/null 2>&1 &
            started+=($!)
            until (: <"/dev/tcp/127.0.0.1/$moto") 2>/dev/null; do
                kill -0 $! 2>/dev/null || fail "moto_server does not start"
                sleep 0.1
            done
            pass_on "$moto" "$work/counts" >"$work/port" &
            ;;
    esac
    started+=($!)
    until [ -s "$work/port" ]; do sleep 0.1; done
    at=http://127.0.0.1:$(cat "$work/port")
    address=$at/root.img
    if [ "$from" = --s3 ]; then
        export AWS_ENDPOINT_URL=$at AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_REGION=us-east-1
        address=s3://bucket/root
        "$extant" push "$work/root.img" "$address" || fail "the image is not pushed"
        # The program of the push ends after it. Later requests are those of the boot.
        before=
        until [ "$before" = "$(cat "$work/counts")" ]; do
            before=$(cat "$work/counts")
            sleep 3
        done
        read -r gets_before lists_before others_before sent_before <<<"$before"
    fi
    # It ends if its standard input does.
    mkfifo "$work/alive"
    exec 8<>"$work/alive"
    "$remote" serve --read-only "$work/socket" "$address" <&8 >"$work/remote" &
    started+=($!)
    until grep -qs ready "$work/remote"; do sleep 0.1; done
    disk="file=nbd+unix:///?socket=$work/socket,snapshot=on"
    say "a server has the image, and extant-remote serves it"
fi

scripts/qemu.sh --kernel "$work"
mkfifo "$work/keys"
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 512 \
    -nodefaults -no-user-config -display none -serial stdio -no-reboot -net none \
    -kernel "$work/vmlinuz" -initrd "$work/initrd" \
    -append "console=ttyS0 root=/dev/vda rw quiet panic=-1 tsc=reliable mitigations=off no_timer_check" \
    -drive "$disk,format=raw,if=none,id=disk" -device virtio-blk-pci,drive=disk \
    <"$work/keys" >"$work/serial" 2>&1 &
machine=$!
exec 7>"$work/keys"
hear "made-by-extant login:" "${BOOT_SECONDS:-300}"
echo root >&7
hear "root@made-by-extant" 120
echo 'findmnt -no FSTYPE,SOURCE /; dmesg | grep "EXT4-fs.*rror" || echo "no" errors; echo by-debian >/root/file; sync; echo all "done"' >&7
hear "all done" 60
grep -aq "ext4 */dev/vda" "$work/serial" || fail "its root is no ext4"
grep -aq "^no errors" "$work/serial" || fail "its kernel finds fault with the root"
echo poweroff >&7
for _ in $(seq 600); do
    kill -0 "$machine" 2>/dev/null || break
    sleep 0.2
done
kill -0 "$machine" 2>/dev/null && fail "the machine does not power off"
machine=
say "the machine is off"
if [ -n "$from" ]; then
    if [ "$from" = --web ]; then
        read -r requests sent <"$work/counts"
        requests="$requests requests"
    else
        read -r gets lists others sent <"$work/counts"
        requests="$((gets - gets_before)) gets, $((lists - lists_before)) lists, $((others - others_before)) other requests"
        sent=$((sent - sent_before))
    fi
    size=$(stat -c %s "$work/root.img")
    used=$(($(stat -c %b "$work/root.img") * 512))
    echo "$requests, $((sent / 1048576)) MiB sent of an image of $((size / 1048576)) MiB, of which $((used / 1048576)) MiB are data"
    exit
fi
e2fsck -fn "$work/root.img" >/dev/null 2>&1 || fail "e2fsck finds fault with what Debian left"
[ "$("$extant" cat "$work/root.img:/root/file")" = by-debian ] || fail "what Debian wrote is not there"
say "Debian booted from an image that extant made, and left it clean"
