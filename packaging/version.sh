#!/bin/sh
# Prints the version of this work tree as dpkg and rpm order it: the tag vX.Y.Z is X.Y.Z; vX.Y.Z-rc.1 is X.Y.Z~rc.1, which comes
# before it; N commits after a tag it is X.Y.Z+N.gCOMMIT, and without any tag 0.1.0~N.gCOMMIT. Changes that are not committed
# add +dirty. The length of COMMIT is fixed, for git's own choice differs between clones.
set -eu
cd "$(dirname "$0")/.."
if ! top=$(git rev-parse --show-toplevel) || [ "$top" != "$(pwd -P)" ]; then
	echo "version.sh: $(pwd) is no git work tree, so its version is not known: set VERSION and SOURCE_DATE_EPOCH" >&2
	exit 1
fi
commits=$(git rev-list --count HEAD)
if [ "$(git rev-parse --is-shallow-repository)" != false ]; then
	echo "version.sh: this clone lacks its history, so its version comes before every other: git fetch --unshallow --tags" >&2
	version=0.0.0~g$(git rev-parse --short=12 HEAD)
elif described=$(git describe --tags --long --abbrev=12 --match 'v[0-9]*' 2>/dev/null); then
	commit=${described##*-} # gCOMMIT
	rest=${described%-*}
	after=${rest##*-}
	version=$(printf '%s' "${rest%-*}" | sed -e 's/^v//' -e 's/-/~/' -e 's/-/./g')
	[ "$after" = 0 ] || version=$version+$after.$commit
else
	version=0.1.0~$commits.g$(git rev-parse --short=12 HEAD)
fi
[ -z "$(git --no-optional-locks status --porcelain)" ] || version=$version+dirty
echo "$version"
