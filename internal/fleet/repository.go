package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"time"
)

// ErrNoRepository is returned by Publish for a fleet whose nodes have no executables of their own.
var ErrNoRepository = errors.New("the fleet has no repository; set Options.Upgradable or Options.Version")

// Release is a version in the fleet's repository. With nothing but a Version it upgrades a node to just that.
type Release struct {
	// Version is what a release_update asks for.
	Version string
	// Reports is the version that a node reports once it runs from this release; empty means Version. With another
	// one the upgrade succeeds and never shows.
	Reports string
	// Content replaces the executable: what is no program makes the restart's exec fail, what exits keeps the node down.
	Content []byte
	// Held lets downloads of the executable wait until FreeDownloads.
	Held bool
	// WrongChecksum announces another checksum than the executable has.
	WrongChecksum bool
	// NoBinary announces the release and answers 404 for its executable. A version never published answers 404 at once.
	NoBinary bool
}

// Downloads counts the requests for one version.
type Downloads struct {
	// Announcements and Binaries are requests that came; Waiting are those of Held releases that wait for FreeDownloads.
	Announcements, Binaries, Waiting int
}

// published is a release ready to be served.
type published struct {
	Release
	packed []byte
	hash   string
	freed  chan struct{} // closed once downloads need not wait
}

// repository serves releases as go-updater reads them (http_downloader.go:19-59). Fleet.mu guards the maps.
type repository struct {
	server   *http.Server
	url      string
	releases map[string]*published
	counts   map[string]Downloads
}

const packedBinary = "choria.bz2"

// openRepository serves on a free port.
func (f *Fleet) openRepository() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("opening the repository: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{version}/{os}/{arch}/release.json", f.serveAnnouncement)
	mux.HandleFunc("GET /{version}/{os}/{arch}/"+packedBinary, f.serveBinary)
	r := &repository{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		url:    "http://" + l.Addr().String(), releases: map[string]*published{}, counts: map[string]Downloads{},
	}
	f.update(func() { f.repository = r })
	f.wg.Go(func() {
		if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			f.logf("repository: %v", err)
		}
	})
	return nil
}

func (r *repository) close() {
	if r != nil {
		_ = r.server.Close()
	}
}

// Repository is the URL that a release_update wants as its repository, empty when the fleet has none.
func (f *Fleet) Repository() string {
	if f.repository == nil {
		return ""
	}
	return f.repository.url
}

// Publish puts a release into the repository, in the place of an earlier one of that version, whose waiting downloads go
// on with what they came for.
func (f *Fleet) Publish(r Release) error {
	if f.repository == nil {
		return ErrNoRepository
	}
	if r.Reports == "" {
		r.Reports = r.Version
	}
	for _, v := range []string{r.Version, r.Reports} {
		if !versionText.MatchString(v) {
			return fmt.Errorf("publishing version %q: use letters, digits and . + ~ _ -, 64 at most", v)
		}
	}
	content := r.Content
	if content == nil {
		content = release(r.Reports, f.opts.NodeCommand)
	}
	packed, err := bzip2(content)
	if err != nil {
		return fmt.Errorf("publishing version %s, %d bytes: %w; the most is %d", r.Version, len(content), err, maxPacked)
	}
	sum := sha256.Sum256(content)
	if r.WrongChecksum {
		sum[0]++
	}
	p := &published{Release: r, packed: packed, hash: hex.EncodeToString(sum[:]), freed: make(chan struct{})}
	if !r.Held {
		close(p.freed)
	}
	f.update(func() {
		f.free(r.Version)
		f.repository.releases[r.Version] = p
	})
	return nil
}

// FreeDownloads lets the waiting and all later downloads of a Held release go on, and tells how many waited. Await them
// with Wait and State.Downloads.
func (f *Fleet) FreeDownloads(version string) int {
	if f.repository == nil {
		return 0
	}
	waited := 0
	f.update(func() {
		waited = f.repository.counts[version].Waiting
		f.free(version)
	})
	return waited
}

// free needs Fleet.mu.
func (f *Fleet) free(version string) {
	p := f.repository.releases[version]
	if p == nil {
		return
	}
	select {
	case <-p.freed:
	default:
		close(p.freed)
	}
}

// count finds the release of a request and counts it.
func (f *Fleet) count(r *http.Request, change func(*Downloads)) (p *published) {
	version := r.PathValue("version")
	f.update(func() {
		c := f.repository.counts[version]
		change(&c)
		f.repository.counts[version] = c
		p = f.repository.releases[version]
	})
	return p
}

func (f *Fleet) serveAnnouncement(w http.ResponseWriter, r *http.Request) {
	p := f.count(r, func(c *Downloads) { c.Announcements++ })
	if p == nil {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"binary": packedBinary, "hash": p.hash})
}

func (f *Fleet) serveBinary(w http.ResponseWriter, r *http.Request) {
	p := f.count(r, func(c *Downloads) { c.Binaries++ })
	if p == nil || p.NoBinary {
		http.NotFound(w, r)
		return
	}
	if !f.awaitFreed(r.Context(), r, p) {
		return
	}
	_, _ = w.Write(p.packed)
}

// awaitFreed tells whether the download may go on; not when its node went away.
func (f *Fleet) awaitFreed(ctx context.Context, r *http.Request, p *published) bool {
	select {
	case <-p.freed:
		return true
	default:
	}
	f.count(r, func(c *Downloads) { c.Waiting++ })
	defer f.count(r, func(c *Downloads) { c.Waiting-- })
	select {
	case <-p.freed:
		return true
	case <-ctx.Done():
		return false
	}
}

// downloads needs Fleet.mu.
func (f *Fleet) downloads() map[string]Downloads {
	if f.repository == nil {
		return nil
	}
	return maps.Clone(f.repository.counts)
}
