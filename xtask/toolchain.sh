#!/usr/bin/env bash
# toolchain.sh DIR PYTHON: Rust with its sources and the standard library for Linux on aarch64, from packages of Debian testing, unpacked
# below DIR beside the system; and C compilers for other systems, which are Zig's. PYTHON has the package ziglang. Repeatable.
#
# Afterwards: DIR/rustc, DIR/library (the sources of the standard library), DIR/bin/cc-TARGET, DIR/bin/ar.
set -euo pipefail
dir=$1 python=$2
suite=forky
apt=$dir/apt
mkdir -p "$apt"/etc/apt/{sources.list.d,preferences.d} "$apt"/state/lists/partial "$apt"/cache/archives/partial "$dir/bin"

if [ ! -e "$dir/complete" ]; then
  : > "$apt/status"
  eval "$(apt-config shell lists Dir::Etc::sourceparts/d parts Dir::Etc::parts/d trusted Dir::Etc::trusted/f keys Dir::Etc::trustedparts/d)"
  # The machine's own sources, for the other suite, which has no security updates of its own.
  cat "$lists"/debian*.sources | sed -E "s/^(Suites:).*/\1 $suite/" | awk 'BEGIN{RS="";ORS="\n\n"} !/-security/' > "$apt/etc/apt/sources.list.d/$suite.sources"
  cat > "$apt/apt.conf" << CONF
Dir::Etc "$apt/etc/apt/";
Dir::Etc::Parts "$parts";
Dir::Etc::trusted "$trusted";
Dir::Etc::trustedparts "$keys";
Dir::State "$apt/state/";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache/";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Install-Recommends "false";
APT::Architectures "amd64,arm64";
CONF
  export APT_CONFIG=$apt/apt.conf
  apt-get -qq update
  # Everything that rustc needs at run time comes along, a newer C library among it.
  apt-get -qq install --yes --download-only -o Debug::NoLocking=1 rustc rust-src libstd-rust-dev:arm64
  for package in "$apt"/cache/archives/{rustc,rust-src,lib*amd64,libstd*,zlib*}*.deb; do
    [ ! -e "$package" ] || dpkg-deb --extract "$package" "$dir/root"
  done
  rm -rf "$apt/cache"
  touch "$dir/complete"
fi

usr=$dir/root/usr
cat > "$dir/rustc" << RUSTC
#!/bin/sh
exec '$usr/lib64/ld-linux-x86-64.so.2' --library-path '$usr/lib/x86_64-linux-gnu' '$usr/bin/rustc' --sysroot '$usr' "\$@"
RUSTC
chmod +x "$dir/rustc"
ln -sfn "$(dirname "$(ls -d "$usr"/src/rustc-*/library/Cargo.lock)")" "$dir/library"

# The compiler of each target. Rust's words for targets differ from Zig's, so they are left out.
compiler() {
  cat > "$dir/bin/cc-$1" << CC
#!/usr/bin/env bash
words=() skip=
for word in "\$@"; do
  if [ -n "\$skip" ]; then skip=; continue; fi
  case \$word in
    --target=* | -mmacosx-version-min=*) ;;
    -arch | -target) skip=1 ;;
    *) words+=("\$word") ;;
  esac
done
exec '$python' -m ziglang cc -target $2 "\${words[@]}"
CC
  chmod +x "$dir/bin/cc-$1"
}
compiler aarch64-unknown-linux-gnu aarch64-linux-gnu.2.28
compiler aarch64-apple-darwin aarch64-macos
compiler x86_64-pc-windows-gnu x86_64-windows-gnu
for tool in ar dlltool; do
  printf '#!/bin/sh\nexec %q -m ziglang %s "$@"\n' "$python" "$tool" > "$dir/bin/$tool"
  chmod +x "$dir/bin/$tool"
done
ln -sf dlltool "$dir/bin/x86_64-w64-mingw32-dlltool"
