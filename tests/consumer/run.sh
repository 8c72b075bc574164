#!/usr/bin/env bash
# run.sh BUILD_DIR: installs that build into a scratch prefix, moves the prefix (an installation must
# not remember where it was made), and builds and runs the program next to this file against it.
set -euo pipefail

if (($# != 1)) || [[ ! -f $1/CMakeCache.txt ]]; then
  echo "usage: run.sh BUILD_DIR (a configured and built one)" >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

flags=$(cached CMAKE_CXX_FLAGS)
sanitize=$(cached TESSERA_SANITIZE)
if [[ -n $sanitize ]]; then
  flags+=" -fsanitize=$sanitize"
fi

cmake --install "$build" --prefix "$scratch/made" >/dev/null
mv "$scratch/made" "$scratch/prefix"

cmake -S "$here" -B "$scratch/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" \
  -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
cmake --build "$scratch/build"
"$scratch/build/consumer"
