#!/bin/sh
# After removing. The journal stays, even at a purge, and so does the user that it belongs to: it alone tells what was sent to
# which node.
set -e

case "$1" in
remove | purge) ;; # dpkg
0) ;;              # rpm, the number of versions that stay
*) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || echo "provctl: type: systemctl daemon-reload" >&2
fi
if [ "$1" != remove ] && [ -e /var/lib/provctl ]; then
	echo "provctl: the journal in /var/lib/provctl stays, with the user provctl. A new installation goes on with it."
	echo "provctl: to give up all that it knows of its nodes, remove that directory yourself."
fi
