#!/bin/sh
# Before removing. The worker is stopped in order: it ends what is in flight, or records it. An upgrade stops nothing here.
set -e

case "$1" in
remove | deconfigure) ;; # dpkg
0) ;;                    # rpm, the number of versions that stay
*) exit 0 ;;
esac

if [ ! -d /run/systemd/system ]; then
	# In an image there is nothing to stop, but it may be enabled.
	! command -v systemctl >/dev/null 2>&1 || systemctl disable provctl.service || :
elif ! systemctl disable --now provctl.service; then
	echo "provctl: the worker could not be stopped, so its program stays: systemctl status provctl tells why; stop it, then remove again" >&2
	exit 1
fi
