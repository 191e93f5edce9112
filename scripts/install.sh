#!/usr/bin/env bash
# Installs the command, the program extant-remote if it is next to it, man pages, completions for bash, zsh and fish, and the
# names under which mount(8) looks for the command; or removes exactly that. The files and new directories are listed in
# PREFIX/share/extant/installed. `make install` and `make uninstall` call this.
#   scripts/install.sh install EXTANT     EXTANT: the command that was built
#   scripts/install.sh uninstall
# PREFIX (/usr/local), SBINDIR (/sbin: mount(8) looks nowhere else), ZSHDIR and DESTDIR (a prefix of all paths) are variables.
set -euo pipefail

PREFIX=${PREFIX:-/usr/local}
SBINDIR=${SBINDIR:-/sbin}
ZSHDIR=${ZSHDIR:-$PREFIX/share/zsh/site-functions}
DESTDIR=${DESTDIR:-}
LIST=$PREFIX/share/extant/installed

fail() { echo "install: $*" >&2; exit 1; }

# Makes a directory and those above it; lists those that are new, the uppermost first.
directory() {
  [ -d "$DESTDIR$1" ] && return
  directory "$(dirname "$1")"
  mkdir "$DESTDIR$1"
  echo "$1/" >>"$LISTED"
}

# file MODE FROM TO
file() {
  directory "$(dirname "$3")"
  install -m "$1" "$2" "$DESTDIR$3"
  echo "$3" >>"$LISTED"
}

# link TARGET NAME
link() {
  directory "$(dirname "$2")"
  ln -sf "$1" "$DESTDIR$2"
  echo "$2" >>"$LISTED"
}

# program FROM NAME
program() {
  file 755 "$1" "$PREFIX/bin/$2"
  # What debuggers need is nine tenths of the program, and stays with the one that was built.
  if command -v strip >/dev/null; then strip "$DESTDIR$PREFIX/bin/$2"; fi
}

helpers() {
  if [ -z "$DESTDIR" ] && [ "$(id -u)" != 0 ] && ! [ -w "$SBINDIR" ]; then
    echo "$SBINDIR is not yours to write: mount -t extant and /etc/fstab will not find the command"
    return
  fi
  for name in mount.extant mount.fuse.extant mount.fuseblk.extant; do
    link "$PREFIX/bin/extant" "$SBINDIR/$name"
    link ../man1/extant-mount.1 "$PREFIX/share/man/man8/$name.8"
  done
}

install_all() {
  local page remote
  [ -x "$1" ] || fail "$1: no such program: run cargo build --release -p extant-cli first, as the user who has cargo"
  made=$(mktemp -d)
  trap 'rm -rf "$made"' EXIT
  LISTED=$made/installed
  mkdir -p "$DESTDIR/"
  "$1" man "$made/man"
  for shell in bash zsh fish; do "$1" completions "$shell" >"$made/$shell"; done
  # An older version may have had other pages.
  if [ -e "$DESTDIR$LIST" ]; then uninstall_all; fi
  program "$1" extant
  remote=$(dirname "$1")/extant-remote
  if [ -x "$remote" ]; then
    program "$remote" extant-remote
    file 644 "$(dirname "$0")/../packaging/extant-remote.1" "$PREFIX/share/man/man1/extant-remote.1"
  fi
  for page in "$made"/man/*.1; do file 644 "$page" "$PREFIX/share/man/man1/${page##*/}"; done
  file 644 "$made/bash" "$PREFIX/share/bash-completion/completions/extant"
  file 644 "$made/zsh" "$ZSHDIR/_extant"
  file 644 "$made/fish" "$PREFIX/share/fish/vendor_completions.d/extant.fish"
  helpers
  directory "$(dirname "$LIST")"
  install -m 644 "$LISTED" "$DESTDIR$LIST"
  echo "installed: $DESTDIR$PREFIX/bin/extant"
}

uninstall_all() {
  local name names
  [ -e "$DESTDIR$LIST" ] || fail "nothing to remove: there is no $DESTDIR$LIST (PREFIX and DESTDIR as for make install?)"
  mapfile -t names <"$DESTDIR$LIST"
  rm "$DESTDIR$LIST"
  # Directories last, the innermost first; other programs may have put files there since.
  for name in "${names[@]}"; do
    [[ $name == */ ]] || rm -f "$DESTDIR$name"
  done
  for ((i = ${#names[@]} - 1; i >= 0; i--)); do
    [[ ${names[i]} != */ ]] || rmdir --ignore-fail-on-non-empty "$DESTDIR${names[i]}"
  done
}

case ${1:-} in
  install) [ $# = 2 ] || fail "usage: install.sh install EXTANT"; install_all "$2" ;;
  uninstall) uninstall_all ;;
  *) fail "usage: install.sh install EXTANT | uninstall" ;;
esac
