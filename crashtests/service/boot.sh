# Becomes PID 1 of a machine: boot.sh ROOT CGROUP INIT, in new PID and mount namespaces. Nothing that it mounts is seen outside.
set -eu
root=$1 cgroup=$2 init=$3
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
for dir in usr/*/ etc/ssl/ etc/alternatives/; do
	dir=${dir%/}
	case $dir in usr/bin) continue ;; esac
	mount --rbind -o ro "/$dir" "$dir"
done
mount --rbind -o ro /usr/bin usr/.bin
mount -t tmpfs -o mode=755 tmpfs usr/lib/systemd/system-generators

mount -t tmpfs -o mode=755 tmpfs run
mkdir run/lock
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for node in 'null 3' 'zero 5' 'full 7' 'random 8' 'urandom 9'; do
	mknod -m 666 "dev/${node% *}" c 1 "${node#* }"
done
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr

# PID 1 would raise limits of the whole host there.
mount -t proc proc proc
for file in proc/sys proc/sysrq-trigger; do
	[ -e "$file" ] || continue
	mount --bind "$file" "$file"
	mount -o remount,bind,ro "$file"
done
mount -t sysfs -o ro sysfs sys

# A cgroup of the host's, which the machine then sees as the root of all.
mount -t cgroup2 cgroup2 .cgroup
mkdir -p ".cgroup/$cgroup"
echo 0 >".cgroup/$cgroup/cgroup.procs"
umount .cgroup
export init
exec unshare -C /bin/sh -euc '
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 sys/fs/cgroup
pivot_root . .host
cd /
umount -l .host
exec setpriv --bounding-set -sys_time,-sys_boot,-sys_module,-sys_rawio,-syslog "$init" --system --unit=multi-user.target
'
