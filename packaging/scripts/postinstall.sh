#!/bin/sh
# After unpacking. A new installation is neither enabled nor started, for it has to be configured first. An upgrade restarts a
# worker that runs, in order: it ends what is in flight, or records it, before the new program begins.
set -e

upgrade=no
case "$1" in
configure) [ -z "$2" ] || upgrade=yes ;; # dpkg; $2 is the version before
1) ;;                                    # rpm, the number of versions that are there now
2) upgrade=yes ;;
*) exit 0 ;; # dpkg gives up something else that it had begun
esac

# A site may have made one of them already.
has() { getent "$1" provctl >/dev/null; }
if ! has group || ! has passwd; then
	! command -v systemd-sysusers >/dev/null 2>&1 || systemd-sysusers provctl.conf || :
	has group || ! command -v groupadd >/dev/null 2>&1 || groupadd --system provctl || :
	has passwd || ! command -v useradd >/dev/null 2>&1 || useradd --system --gid provctl --no-create-home \
		--home-dir /var/lib/provctl --shell /usr/sbin/nologin --comment "Provisioner of Choria servers" provctl || :
fi
if ! has group || ! has passwd; then
	echo "provctl: make a user and a group provctl, then configure this package again: dpkg --configure provctl, or reinstall the rpm" >&2
	exit 1
fi

# What root's alone is would keep the worker out; anything else is the site's own choice.
for path in /etc/provctl /etc/provctl/provctl.yaml /etc/provctl/choria.conf; do
	if [ -e "$path" ] && [ "$(stat -c %G "$path")" = root ]; then
		chgrp provctl "$path"
	fi
done

# No package owns this directory, so none removes it. An upgrade does not make it: if it is gone, the journal is lost, or not mounted.
state=/var/lib/provctl
if [ "$upgrade" = no ] && [ ! -e $state ]; then
	install -d -o provctl -g provctl -m 0700 $state
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || echo "provctl: type: systemctl daemon-reload" >&2
fi
if [ -d /run/systemd/system ] && [ "$upgrade" = yes ]; then
	code=0
	# Bounded, since a worker without its broker starts for as long as that lasts. What systemd has begun goes on.
	timeout 240 systemctl try-restart provctl.service || code=$?
	case $code in
	0) ;;
	124) echo "provctl: the worker is still restarting: it ends what is in flight, or waits for its broker. See: systemctl status provctl" >&2 ;;
	*) echo "provctl: the new version does not run; nothing is lost. See: systemctl status provctl; journalctl -u provctl" >&2 ;;
	esac
fi

# dpkg tells of an old version after a removal, too. A worker that was set up once is enabled, or has a journal.
if [ ! -e $state/journal.db ] && { [ "$upgrade" = no ] || ! systemctl is-enabled --quiet provctl.service 2>/dev/null; }; then
	cat <<-EOF
		provctl is installed and does not run yet. Fill in /etc/provctl/provctl.yaml and /etc/provctl/choria.conf, then:
		  provctl init --state-dir $state
		  systemctl enable --now provctl
	EOF
fi
