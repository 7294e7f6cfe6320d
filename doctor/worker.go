package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"provctl/fence"
	"provctl/internal/control"
)

const (
	// patience is for a worker's answer.
	patience = 3 * time.Second
	// beginning is for how long a process may hold the lock without a control socket: it starts, ends, or is a command that works on the journal.
	beginning = 10 * time.Minute
)

// lock finds out who holds the directory, and whether he answers.
func (v *visit) lock(ctx context.Context) {
	if !v.usable {
		return
	}
	dir := v.cfg.StateDir
	var untold error
	v.holder, untold = v.o.Look(dir)
	client, err := control.DialPatience(dir, patience)
	if err == nil {
		live, lerr := client.Live(ctx)
		if err = lerr; err == nil {
			v.client, v.live = client, &live
		}
	}
	switch {
	case v.live != nil:
		v.ok(checkLock, "%s", v.held(v.live.PID))
	case errors.Is(err, control.ErrHung):
		v.hung = true
		v.fail(checkLock, fence.ErrHeld, "", "%v", err)
	case errors.Is(err, control.ErrDenied):
		v.fail(checkLock, nil, "run this as the worker's user or as root", "%v", err)
	case v.holder.PID > 0:
		v.mute()
	case untold != nil:
		v.skip(checkLock, "no worker answers at %s; who holds the lock cannot be told: %v", control.SocketPath(dir), untold)
	case err != nil && !errors.Is(err, control.ErrNoWorker):
		v.warn(checkLock, "run this again", "the worker could not be asked: %v", err)
	default:
		v.ok(checkLock, "%s is free: no worker runs", filepath.Join(dir, lockFile))
	}
}

func (v *visit) held(pid int) string {
	text := fmt.Sprintf("%s is held by process %d", filepath.Join(v.cfg.StateDir, lockFile), pid)
	if v.holder.PID == pid && !v.holder.Since.IsZero() {
		text += " since " + stamp(v.holder.Since)
	}
	return text
}

// mute judges a holder of the lock who serves no socket.
func (v *visit) mute() {
	pid := v.holder.PID
	name := commandOf(pid)
	age := v.o.Now().Sub(v.holder.Since)
	if strings.HasPrefix(name, "provctl") && age < beginning {
		v.warn(checkLock, "run this again in a moment: a worker starts or ends, or a provctl command works on the journal",
			"%s (%s), which serves no %s", v.held(pid), name, control.SocketName)
		return
	}
	v.fail(checkLock, fence.ErrHeld, fmt.Sprintf("look at it with 'ps -o pid,stat,etime,args -p %d', and stop it (kill %d)", pid, pid),
		"%s (%s), which is no worker that answers", v.held(pid), name)
}

// commandOf is the short name of a process, as its own text.
func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// worker tells how a worker that answers is.
func (v *visit) worker() {
	l := v.live
	if l == nil {
		return
	}
	about := fmt.Sprintf("version %s, %s since %s, epoch %d, %d of %d lanes at work, %d queued", l.Version, l.State, stamp(l.Started), l.Epoch, l.Busy, l.Lanes, l.Queue)
	log := "look at its log: journalctl -u provctl, or the logfile"
	runs, owner := userOf(l.PID), v.user
	if l.Standby != "" {
		about += ", stands by: " + l.Standby
	}
	switch {
	case l.State == control.Stopped:
		v.warn(checkWorker, log, "%s: it only answers", about)
	case runs.uid >= 0 && runs.uid != owner.uid:
		v.warn(checkWorker, "start it as "+owner.String()+", or give the directory to its user", "%s; it runs as %s, and the state directory is of %s", about, runs, owner)
	case v.o.Version != "" && l.Version != v.o.Version:
		v.warn(checkWorker, "have it end its work, and the new program started: provctl drain --state-dir "+v.cfg.StateDir,
			"%s; this program is version %s", about, v.o.Version)
	case l.Gate != "":
		v.warn(checkWorker, "provctl inspect says what to do", "%s; it takes no new work: %s", about, l.Gate)
	case !l.Connected:
		v.warn(checkWorker, log+"; what follows tells of the broker", "%s; it is not connected to the broker", about)
	default:
		v.ok(checkWorker, "%s, connected to the broker", about)
	}
}

// groupSocket asks the worker through the socket of control_group.
func (v *visit) groupSocket() {
	if v.cfg.ControlGroup == "" || v.config.Failed("control_group", "control_socket") || !v.usable {
		return
	}
	path := v.cfg.ControlSocket
	if v.live == nil {
		v.skip(checkGroup, "%s is served while a worker runs", path)
		return
	}
	if _, err := control.DialPatience(control.SocketPlace(path), patience); err != nil {
		v.warn(checkGroup, "restart the worker if the key was changed since, and see its log", "members of %s cannot reach the worker: %v", v.cfg.ControlGroup, err)
		return
	}
	v.ok(checkGroup, "%s is served for group %s", path, v.cfg.ControlGroup)
}

// userOf is whom a process runs as; uid -1: not known.
func userOf(pid int) user {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return user{-1, -1}
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) > 2 && f[0] == "Uid:" {
			if uid, err := strconv.Atoi(f[2]); err == nil {
				return user{uid, -1}
			}
		}
	}
	return user{-1, -1}
}

// ports looks at a port of ours without taking it.
func (v *visit) ports(key string, port int) {
	if port == 0 || v.config.Failed(key) {
		return
	}
	inode, err := listener(port, key == "status_port")
	if err != nil {
		v.skip(key, "who listens on port %d cannot be told: %v", port, err)
		return
	}
	pid := 0
	if inode != "" {
		pid = socketOwner(inode)
	}
	switch {
	case inode == "" && v.live != nil:
		v.warn(key, "restart the worker if it has been changed since", "nobody listens on port %d, though a worker runs", port)
	case inode == "":
		v.ok(key, "port %d is free", port)
	case v.live != nil && pid == v.live.PID:
		v.ok(key, "port %d is served by the worker", port)
	case pid > 0 && pid == v.holder.PID:
		v.ok(key, "port %d is served by process %d, which holds the worker lock", port, pid)
	case v.live == nil && v.holder.PID > 0 && pid == 0:
		v.skip(key, "port %d is in use, as far as this user can see perhaps by process %d, which holds the worker lock", port, v.holder.PID)
	case v.live != nil && pid == 0:
		v.ok(key, "port %d is in use, by the worker as far as this user can see", port)
	default:
		who := "a process that this user cannot see"
		if pid > 0 {
			who = fmt.Sprintf("process %d (%s)", pid, commandOf(pid))
		}
		v.fail(key, nil, "stop what uses the port, set another one, or 0 for none", "port %d is in use by %s", port, who)
	}
}

// listener finds a socket that listens on a port, by its inode: of any address, or of those that collide with 127.0.0.1. See proc_net(5).
func listener(port int, loopback bool) (inode string, err error) {
	read := false
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, ferr := os.Open(name)
		if ferr != nil {
			err = ferr
			continue
		}
		read = true
		inode = listening(f, port, loopback)
		_ = f.Close()
		if inode != "" {
			return inode, nil
		}
	}
	if read {
		return "", nil
	}
	return "", err
}

func listening(table io.Reader, port int, loopback bool) string {
	// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode; the address in hex, of the host's byte order
	for lines := bufio.NewScanner(table); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != "0A" {
			continue
		}
		addr, p, ok := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(p, 16, 16); !ok || err != nil || int(n) != port {
			continue
		}
		if anywhere := strings.Trim(addr, "0") == ""; !loopback || anywhere || strings.HasSuffix(addr, "0100007F") {
			return f[9]
		}
	}
	return ""
}

// socketOwner finds the process that has a socket open, 0 if this user cannot see it.
func socketOwner(inode string) int {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
			pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
			return pid
		}
	}
	return 0
}
