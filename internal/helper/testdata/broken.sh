#!/bin/sh
# A helper with the faults that helpers have; the argument says which.
set -eu

case $1 in
crash)
	printf 'no answer from the inventory, token=hunter2 \033[2J' >&2
	head -c 100000 /dev/zero | tr '\0' x >&2
	false
	echo '{"defer":true}'
	;;
chatty)
	echo "looking at a node"
	echo '{"defer":true}'
	;;
silent)
	cat >/dev/null
	;;
esac
