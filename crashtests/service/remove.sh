# Removes the cgroups that a machine left: remove.sh ROOT CGROUP, in a mount namespace of its own.
set -eu
mount -t cgroup2 cgroup2 "$1/.cgroup"
[ ! -d "$1/.cgroup/$2" ] || find "$1/.cgroup/$2" -depth -type d -exec rmdir {} +
