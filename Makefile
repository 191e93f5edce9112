# make demo   builds, makes an image, fills it from many threads, checks it, prints the rates
# make test   installs what the tests need with apt if it is absent, runs everything
# make bench  writes docs/bench/REPORT.md (QUICK=1: in about five minutes); torture runs have targets of their own below

CARGO ?= cargo
TEST_TOOLS = mke2fs e2fsck debugfs dumpe2fs tar zstd setfacl setfattr valgrind fusermount3 git gcc rsync sqlite3 fio stress-ng dbench \
  qemu-system-x86_64 busybox mmdebstrap curl newuidmap zsh fish tmux sfdisk sgdisk qemu-img xz bzip2 cpio bsdtar simg2img mksquashfs nbdkit nbd-server openssl veritysetup

.PHONY: python bindings leaks test-remote c consumers first-use dist cross-check demo test unit deny package public-api release-check judge instructions loom shuttle miri fuzz lint install uninstall deb book bench bench-long torture torture-changes torture-contents torture-crash torture-fast-commits torture-features torture-hostile torture-images torture-kernel torture-kill torture-lines torture-model torture-mount torture-programs torture-remote torture-repair torture-schedules torture-threads tools clean wheels go install-c deb-c

demo:
	$(CARGO) run --profile demo -p extant-demo

test: tools unit loom shuttle

# All tests but the models; TESTS=NAME runs those whose name contains NAME.
TESTS ?=
unit:
	CARGO="$(CARGO)" scripts/test.sh $(TESTS)

loom:
	scripts/loom.sh

shuttle:
	scripts/shuttle.sh

# Needs a nightly toolchain with Miri, so it is no part of `make test`.
miri:
	scripts/miri.sh

# libFuzzer over the parsers, a minute each; needs network for the harness the first time.
fuzz:
	scripts/fuzz.sh 60

# Checks that the tests find faults planted for this purpose, some of which were real.
judge: tools
	scripts/judge.sh

# Programs that call e2fsprogs, run with it and with this program under its names; as root. `apt install genimage fsarchiver partclone` brings some.
consumers:
	$(CARGO) build --profile test-fast -p extant-cli
	scripts/consumers.sh $${CARGO_TARGET_DIR:-target}/test-fast/extant

# Builds the Python package in a virtual environment and runs its tests.
python:
	scripts/python.sh

# All three bindings with one build of the engine: what `python`, `c` and `go` do.
bindings:
	scripts/bindings.sh

# A million opens from Python and 200 from C under valgrind: nothing may grow.
leaks:
	scripts/leaks.sh

# Images on NBD servers, web servers, object stores and Ceph, against servers that it installs. scripts/test-remote.sh --short: NBD and one S3 server.
test-remote:
	CARGO="$(CARGO)" scripts/test-remote.sh

# abi3 wheels for x86_64 and aarch64 in dist/, tried in new virtual environments.
wheels:
	scripts/wheels.sh

# Builds libextant and runs its tests in C and C++, under the sanitizers and valgrind.
c:
	scripts/c.sh

# Builds libextant and runs the tests of the Go module against it.
go:
	scripts/go.sh

# libextant, its headers, man page and pkg-config file below PREFIX. LIBDIR and DESTDIR are variables, too.
install-c:
	cd bindings/c && CARGO_TARGET_DIR="$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/c" $(CARGO) build --release
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" LIBDIR="$(LIBDIR)" STRIP=strip scripts/c-install.sh "$(or $(CARGO_TARGET_DIR),target)/c/release/libextant.a"

# The Debian packages libextant1 and libextant-dev, in target/debian, unpacked and used.
deb-c:
	scripts/c-deb.sh

# Fails if an operation takes over 1 % more instructions than docs/bench/instructions.md says.
instructions: tools
	scripts/instructions.sh --check

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --profile test-fast -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --profile test-fast --quiet
	scripts/links.sh
	scripts/words.sh
	scripts/sizes.sh

# Everything that a release promises about the crates: CI does so when what it looks at has changed.
release-check:
	scripts/release-check.sh

# Licences, origins and known vulnerabilities of the crates that are built on.
deny:
	scripts/deny.sh

# Whether the published crates can be published, and build from what would be.
package:
	scripts/package.sh

# Whether their public interface is what docs/api says.
public-api:
	scripts/public-api.sh

# As root the kernel's ext4 and fuse2fs take part. Fails with the names of packages that are missing; PARTIAL=1 leaves out
# what needs them.
bench:
	$(CARGO) build --release -p extant-cli -p extant-bench
	scripts/report.sh $(if $(PARTIAL),--partial) $(if $(QUICK),--quick)

# Benchmarks of larger trees, which take longer: docs/bench/long/REPORT.md.
bench-long:
	$(CARGO) build --release -p extant-cli -p extant-bench
	scripts/report.sh $(if $(PARTIAL),--partial) --long $(if $(QUICK),--quick)

# The command, its man pages, completions, and the names under which mount(8) looks for it. EXTANT=file installs one that is
# built already.
PREFIX ?= /usr/local
SBINDIR ?= /sbin
EXTANT ?=
PLACES = PREFIX="$(PREFIX)" SBINDIR="$(SBINDIR)" DESTDIR="$(DESTDIR)"

install:
	@[ -n "$(EXTANT)" ] || if command -v $(CARGO) >/dev/null; then $(CARGO) build --release -p extant-cli -p extant-remote; \
	else echo "$(CARGO) is not in PATH: what is built already is installed"; fi
	@$(PLACES) scripts/install.sh install "$(or $(EXTANT),$${CARGO_TARGET_DIR:-target}/release/extant)"

uninstall:
	@$(PLACES) scripts/install.sh uninstall

# A Debian package, in target/debian, and whether it installs, works and is removed without a trace in a new Debian root (needs root).
deb:
	EXTANT="$(EXTANT)" scripts/deb.sh

# The documents as a book, in target/book/html. Needs mdbook (cargo install mdbook).
book:
	rm -rf target/book
	mkdir -p target/book/src
	cp -r *.md docs target/book/src/
	sed -e 's|](|](docs/|' -e 's|](docs/\.\./|](|' docs/SUMMARY.md >target/book/src/SUMMARY.md
	rm target/book/src/docs/SUMMARY.md
	sed -i 's|(docs/SUMMARY.md)|(index.html)|' target/book/src/README.md
	mdbook build

# The first minutes of five users, each in a new Debian root (needs root and a mirror of Debian).
first-use:
	[ -n "$(EXTANT)" ] || $(CARGO) build --release -p extant-cli
	EXTANT="$(EXTANT)" scripts/first-use.sh

# Static programs for x86_64 and aarch64 in dist/, tried, each below 8.4 MB.
dist:
	scripts/dist.sh

# The format, the engine and mkfs for macOS and FreeBSD.
cross-check:
	scripts/dist.sh --check

# Slow runs of what `make test` runs in short. EXTANT_SEEDS=n takes n seeds of each kind, EXTANT_FIRST_SEED=n begins with
# that one, to go on with a run, EXTANT_SEED=n takes only that one, to see a failure again.
#
# All tests that cut the power: about an hour on two cores.
torture: torture-crash torture-contents torture-programs torture-repair torture-changes

# Contents after one, two and three cuts, over the library and over the mount's handler.
torture-contents:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant --test it contents:: -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-fuse --lib it::served:: -- --nocapture

# Programs over a recorded device below a mount, until 1,000,000 fsyncs have been acknowledged (EXTANT_FSYNCS=n: n). Root.
torture-programs:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-fuse --lib it::programs:: -- --nocapture

# 1,000 connections to an NBD server are cut under programs that sync, and replies are delayed, reordered and failed. Root.
torture-remote:
	$(CARGO) build --profile test-fast -p extant-remote -p extant-cli
	EXTANT_TORTURE=1 EXTANT_DISCONNECTS=1000 $(CARGO) test --profile test-fast -p extant-cli --test it mount::remote_torture -- --nocapture

torture-crash:
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant --test it crash:: -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant --test it large_journal:: -- --nocapture

# Fast commits of 100 programs replayed by e2fsck and the kernel, and 240 images that are cut while the kernel writes fast commits. Root.
torture-fast-commits:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant --test it fast_commit:: -- --nocapture

torture-hostile:
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant --test it hostile:: -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant-mkfs --lib from_squashfs::damaged -- --nocapture

# 100,000 images broken on purpose under all operations that read and write them.
torture-images:
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant-cli --test it images:: -- --nocapture

# Trees and journals of the engine and the kernel, and threads beside each other, with the amounts that `make test` cuts. Root.
torture-kernel:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant --test it -- kernel:: concurrent:: --nocapture

torture-kill:
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant --test it kill:: -- --nocapture

# Cache lines that operations share: pairs of every operation that commutes, and what four cores take from each other. Six minutes.
# Line tables name the code of each access.
torture-lines:
	EXTANT_TORTURE=1 CARGO_PROFILE_TEST_FAST_DEBUG=line-tables-only $(CARGO) test --profile test-fast -p extant-bench --test it -- share_no_line take_few_lines --nocapture

torture-model:
	EXTANT_TORTURE=1 $(CARGO) test --profile torture -p extant --test it model:: -- --nocapture

torture-mount:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-cli --test it mount:: -- --nocapture

# 100,000 images broken on purpose and mended, 3,000 of them beside e2fsck; a repair and a change killed at any moment, 200 times each.
torture-repair:
	EXTANT_SEEDS=3000 $(CARGO) test --profile test-fast -p extant-repair --lib it::mutants::mutants_are -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-repair --lib it::mutants::repairs_end -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-cli --test it cli::repair::a_kill -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-cli --test it cli::tune::a_kill -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-cli --test it cli::resize::a_kill -- --nocapture
	EXTANT_SEEDS=300 $(CARGO) test --profile test-fast -p extant-resize --lib by_chance -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-check --lib it::damage:: -- --nocapture
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-repair --lib it::damage:: -- --nocapture

# 100,000 mutants of images with every feature and the damaged images of e2fsprogs, mended beside e2fsck; the table says where fewer files
# are kept. Root.
torture-features:
	scripts/e2fsprogs-images.sh $${CARGO_TARGET_DIR:-target}/e2fsprogs-images
	EXTANT_IMAGES=$$(realpath $${CARGO_TARGET_DIR:-target}/e2fsprogs-images) EXTANT_TORTURE=1 \
	  $(CARGO) test --profile test-fast -p extant-repair --lib it::features:: -- --nocapture

# Changes in place that end at each of their writes, each image then opened in one of twelve ways, and taken back: 2,000 cases. Root.
torture-changes:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant-cli --test it cli::interrupted::no_file_is_lost -- --nocapture

# The engine under EXTANT_SCHEDULES schedules of each kind, 3,000 if it is not set; prints the number of turns.
torture-schedules:
	EXTANT_SCHEDULES=$${EXTANT_SCHEDULES:-3000} $(CARGO) test --profile test-fast -p extant --test it schedules:: -- --nocapture

# Threads are held up at points that only builds with debug assertions have.
torture-threads:
	EXTANT_TORTURE=1 $(CARGO) test --profile test-fast -p extant --test it -- linearizable:: concurrent:: --nocapture

tools:
	@missing=; for tool in $(TEST_TOOLS); do command -v $$tool >/dev/null 2>&1 || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ]; then \
	  echo "tests need:$$missing; installing with apt"; \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -q && $$sudo apt-get install -y -q e2fsprogs tar zstd acl attr valgrind \
	    fuse3 git gcc libc6-dev rsync sqlite3 fio stress-ng dbench curl uidmap tmux fdisk gdisk qemu-utils xz-utils bzip2 cpio libarchive-tools android-sdk-libsparse-utils squashfs-tools cryptsetup-bin; \
	  $$sudo apt-get install -y -q --no-install-recommends qemu-system-x86 busybox-static mmdebstrap zsh fish; \
	fi
	scripts/qemu.sh --fetch || [ -z "$$CI" ]
	scripts/test-remote.sh --tools || [ -z "$$CI" ]

clean:
	$(CARGO) clean
