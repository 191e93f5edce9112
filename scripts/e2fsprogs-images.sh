#!/bin/bash
# Fetches the sources of e2fsprogs, and unpacks the images of its tests into a directory, each under the name of its test.
# scripts/e2fsprogs-images.sh DIR
set -eu
dir=$1
version=1.47.4
sum=2cec05f39c20ee621f14926195664e66e6017190ac8e4bbdb16d86082e43c5da
[ ! -d "$dir" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl -fsSL -o "$work/sources" "http://deb.debian.org/debian/pool/main/e/e2fsprogs/e2fsprogs_$version.orig.tar.gz"
echo "$sum  $work/sources" | sha256sum --check --quiet
tar -xzf "$work/sources" -C "$work" --strip-components 1
mkdir "$work/images"
for image in "$work"/tests/*/image.gz; do
  name=$(basename "$(dirname "$image")")
  gzip -dc "$image" | cp --sparse=always /dev/stdin "$work/images/$name"
done
mkdir -p "$(dirname "$dir")"
mv "$work/images" "$dir"
