#!/bin/sh
# Makes the packages of provctl: build.sh [DIR], where DIR (dist) gets deb, rpm, tarball, SBOM and SHA256SUMS. Of the environment it
# takes GO, GOARCH, and, outside of a git work tree, VERSION and SOURCE_DATE_EPOCH. The same source and the same Go give the same
# bytes, wherever and whenever they are made.
set -eu
umask 022
fail() {
	echo "build.sh: $*" >&2
	exit 1
}
out=${1:-$(dirname "$0")/../dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."

GO=${GO:-go}
VERSION=${VERSION:-$(packaging/version.sh)}
case $VERSION in
[0-9]*) ;;
*) fail "version \"$VERSION\" does not begin with a digit: set VERSION to one such as 1.2.3 or 1.2.3~rc.1" ;;
esac
case $VERSION in
*[!A-Za-z0-9.+~]*) fail "version \"$VERSION\" has more than letters, digits, . + and ~, which dpkg or rpm would refuse: correct VERSION" ;;
esac
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
case $SOURCE_DATE_EPOCH in
'' | *[!0-9]*) fail "SOURCE_DATE_EPOCH \"$SOURCE_DATE_EPOCH\" is no number of seconds: set it to the time of the source" ;;
esac
GOARCH=${GOARCH:-$("$GO" env GOARCH)}
export VERSION SOURCE_DATE_EPOCH GOARCH LC_ALL=C TZ=UTC GOOS=linux CGO_ENABLED=0 GOAMD64=v1 GOFLAGS=-mod=readonly
unset GOEXPERIMENT
HOST=$("$GO" env GOHOSTARCH)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
name=provctl-$VERSION-linux-$GOARCH
stage=$work/$name
mkdir -p "$stage/config" "$stage/completion" "$stage/man" "$stage/monitoring" "$stage/doc"

# compile ARCH FILE: a static program without the machine's paths in it, so that it is the same everywhere.
compile() {
	GOARCH=$1 "$GO" build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o "$2" ./cmd/provctl
}
compile "$GOARCH" "$stage/provctl"
host=$stage/provctl
if [ "$GOARCH" != "$HOST" ]; then
	host=$work/host-provctl
	compile "$HOST" "$host"
fi
(cd packaging/tools && GOARCH=$HOST "$GO" build -trimpath -buildvcs=false -o "$work/tools/" tool)

"$host" completion bash >"$stage/completion/provctl.bash"
"$host" completion zsh >"$stage/completion/_provctl"
"$host" completion fish >"$stage/completion/provctl.fish"
"$host" man | gzip -n9 >"$stage/man/provctl.8.gz"
cp packaging/provctl.yaml packaging/choria.conf "$stage/config/"
cp packaging/grafana-dashboard.json packaging/prometheus-alerts.yaml "$stage/monitoring/"
cp packaging/provctl.service packaging/provctl.sysusers LICENSE "$stage/"
cp README.md docs/*.md docs/*.json "$stage/doc/"
"$work/tools/cyclonedx-gomod" bin -json -noserial -notimestamp -version "v$VERSION" -output "$stage/sbom.cdx.json" "$stage/provctl" 2>/dev/null ||
	fail "the bill of materials of $stage/provctl could not be made: cyclonedx-gomod bin says why"

# The program holds other people's code, whose licences ask to go with it.
"$GO" version -m "$stage/provctl" | awk '$1 == "dep" { print $2 "@" $3 }' | sort >"$work/modules"
while read -r module; do
	dir=$("$GO" mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	printf '%s\n\n' "==== $module ===="
	find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) ! -name '*.go' | sort | while read -r file; do
		cat "$file"
		echo
	done
done <"$work/modules" >"$work/licenses"
printf '%s\n\n' '==== the standard library and runtime of Go ====' >>"$work/licenses"
cat "$("$GO" env GOROOT)/LICENSE" >>"$work/licenses"
gzip -n9 <"$work/licenses" >"$stage/third-party-licenses.gz"

chmod -R u+rwX,go+rX,go-w "$stage"
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
cp -r packaging/scripts packaging/nfpm.yaml "$work/"
# Of earlier builds only those that these take the place of: the directory may hold more.
case $GOARCH in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*) machine=$GOARCH ;;
esac
rm -f "$out"/provctl_*_"$GOARCH".deb "$out"/provctl-*."$machine".rpm "$out"/provctl-*-linux-"$GOARCH".tar.gz "$out"/provctl-*-linux-"$GOARCH".cdx.json
for packager in deb rpm; do
	(cd "$work" && STAGE=$name tools/nfpm package --config nfpm.yaml --packager $packager --target "$out/" >/dev/null)
done
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" | gzip -n >"$out/$name.tar.gz"
cp "$stage/sbom.cdx.json" "$out/$name.cdx.json"
(cd "$out" && sha256sum -- provctl[_-]* >SHA256SUMS && cat SHA256SUMS)
