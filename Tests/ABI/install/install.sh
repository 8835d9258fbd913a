#!/usr/bin/env bash
# Installs the library to a fresh prefix, then builds and runs a C project against it with
# neither Swift nor Ninja in reach.
#   install.sh pkg_config|plain_flags|find_package BUILD CMAKE
#   install.sh http_pkg_config|http_plain_flags|http_find_package BUILD CMAKE: libhutch_http
# Or looks at what is installed, or at how the checkout does within another project.
#   install.sh files|add_subdirectory|fetch_content|makefiles|again BUILD CMAKE
set -euo pipefail
way=$1 build=$2 cmake=$3
project=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$project/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() { echo "$*" >&2; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
within() { # within CMAKE-ARGUMENT...: configures a project that Hutch is a part of
  "$cmake" -S "$project/within" -B "$work/out" -DHUTCH_CHECKOUT="$checkout" \
    -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" \
    -DCMAKE_Swift_COMPILER="$(cached CMAKE_Swift_COMPILER)" "$@" 2>&1
}
# How a build compiles the engine: a word a line, without the places of its files, and without the
# option that keeps the bitcode for tests.
compilation() { # compilation DIRECTORY
  "$(cached CMAKE_MAKE_PROGRAM)" -C "$1" -t commands hutch | grep -e -emit-library |
    sed 's/^: && //; s/ && .*//; s/-Xlinker --save-temps=preopt//' | tr -s ' ' '\n' |
    sed 's#^[^-/].*/##'
}
# All files that the build would read are there, and it would compile the engine as a release build
# of the checkout does. It is not made, since that takes a minute: scripts/test builds such projects,
# with the engine's bitcode.
has_all_files() {
  local inputs file
  if [ "$(cached CMAKE_BUILD_TYPE)" = Release ]; then
    compilation "$build" >"$work/own"
    grep -e -Osize "$work/own"
    compilation "$work/out" | diff "$work/own" - || fail "a part's engine is compiled otherwise"
  fi
  inputs=$("$(cached CMAKE_MAKE_PROGRAM)" -C "$work/out" -t inputs all | grep -v '^ninja:')
  grep hutch.map <<<"$inputs"
  while read -r file; do
    if [[ $file = /* ]] && [ ! -e "$file" ]; then fail "$file is missing"; fi
  done <<<"$inputs"
  # Neither the tests nor the installation of a part become the whole's.
  if grep check.c <<<"$inputs"; then fail "the tests of a part are built"; fi
  if "$cmake" -P "$work/out/cmake_install.cmake" | grep hutch; then fail "a part is installed"; fi
}
case $way in
  add_subdirectory) within -G Ninja; has_all_files; exit ;;
  fetch_content) within -G Ninja -DHUTCH_FETCHED=ON; has_all_files; exit ;;
  makefiles)
    if said=$(within -G "Unix Makefiles"); then fail "it was not refused"; fi
    grep -e "-G Ninja" <<<"$said"
    exit
    ;;
  again)
    # Everything that Ninja expects of the compiler is there, or it would compile once more.
    objects=$("$(cached CMAKE_MAKE_PROGRAM)" -C "$build" -t targets all | sed -n 's/: Swift_.*//p')
    grep -m 1 swift.o <<<"$objects"
    while read -r file; do
      if [ ! -e "$build/$file" ]; then fail "$file was not made"; fi
    done <<<"$objects"
    exit
    ;;
esac

"$cmake" --install "$build" --prefix "$prefix" >/dev/null
if [ "$way" = files ]; then
  cd "$prefix"
  for file in include/hutch{,_tasks,_dl}.h share/doc/hutch/{LICENSE,examples/example.c}; do
    test -s "$file"
  done
  for file in $(find . -type f -name 'libhutch*.so.*'); do
    if readelf -S "$file" | grep -F -e .symtab -e .debug; then fail "$file is not stripped"; fi
  done
  library=$(find . -name 'libhutch.so.*.*')
  # What is installed suffices for the example of dlopen.
  cc -Iinclude -o "$work/example" share/doc/hutch/examples/example_dlopen.c
  "$work/example" "$work/cache" "$PWD/$library"
  exit
fi
# The same ways for libhutch_http, whose program includes its header only.
module=hutch source=main.c libraries=-lhutch
if [[ $way = http_* ]]; then
  way=${way#http_} module=hutch_http source=http.c libraries="-lhutch_http -lhutch"
fi
cp "$project/$source" "$work/main.c"
cp "$project/Makefile" "$project/CMakeLists.txt" "$work/"
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
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs "$module")
    make CC=cc FLAGS="$flags -Wl,-rpath,$library"
    output=$(./main)
    ;;
  plain_flags)
    make CC=cc FLAGS="-I$prefix/include -L$library $libraries"
    output=$(LD_LIBRARY_PATH=$library ./main)
    ;;
  find_package)
    for name in Hutch hutch; do
      cmake -S . -B "out-$name" -G "Unix Makefiles" -DCMAKE_C_COMPILER=cc \
        -DCMAKE_PREFIX_PATH="$prefix" -DHUTCH_AS="$name" \
        -DHUTCH_MODULE="Hutch::$module"
      cmake --build "out-$name"
      output=$("./out-$name/main")
      [ "$output" = value ]
      rm -rf cache
    done
    ;;
esac
[ "$output" = value ]
