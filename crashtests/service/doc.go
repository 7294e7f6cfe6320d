// Package service boots a real systemd as PID 1 of namespaces of its own, so that a test can have units installed, killed, restarted and cut
// off from power without the machine's own systemd, if it has one, ever hearing of it. Processes, mounts, cgroups, IPC and host name are
// private; the network is shared, so that a service reaches a broker on 127.0.0.1. It needs root, Linux with cgroup v2, and Debian's package
// systemd or what equals it.
package service
