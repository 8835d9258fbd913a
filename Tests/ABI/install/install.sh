#!/usr/bin/env bash
# Installs the library to a fresh prefix, then builds and runs a C project against it with
# neither Swift nor Ninja in reach.
#   install.sh pkg_config|plain_flags|find_package BUILD CMAKE
set -euo pipefail
way=$1 build=$2 cmake=$3
project=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

"$cmake" --install "$build" --prefix "$prefix" >/dev/null
cp "$project/main.c" "$project/Makefile" "$project/CMakeLists.txt" "$work/"
library=$(dirname "$(find "$prefix" -name libhutch.so)")

# Only what such a project needs is on PATH.
mkdir "$work/bin"
for tool in cc gcc as ld ar ranlib nm strip objdump objcopy readelf make pkg-config \
  sh bash uname sed dirname rm; do
  if found=$(command -v "$tool"); then ln -s "$found" "$work/bin/$tool"; fi
done
ln -s "$cmake" "$work/bin/cmake"
export PATH=$work/bin
unset CC CFLAGS LDFLAGS LIBRARY_PATH CPATH CMAKE_GENERATOR
if command -v swiftc || command -v ninja; then
  echo "swiftc or ninja is still on PATH" >&2
  exit 1
fi

cd "$work"
case $way in
  pkg_config)
    # A prefix given to `cmake --install` is not the one that hutch.pc was configured for.
    export PKG_CONFIG_PATH=$library/pkgconfig
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs hutch)
    make CC=cc FLAGS="$flags -Wl,-rpath,$library"
    output=$(./main)
    ;;
  plain_flags)
    make CC=cc FLAGS="-I$prefix/include -L$library -lhutch"
    output=$(LD_LIBRARY_PATH=$library ./main)
    ;;
  find_package)
    cmake -S . -B out -G "Unix Makefiles" -DCMAKE_C_COMPILER=cc -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build out
    output=$(./out/main)
    ;;
esac
[ "$output" = value ]
