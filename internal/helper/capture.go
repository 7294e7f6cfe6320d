package helper

import "os"

// capture reads a pipe into bounded memory.
type capture struct {
	r       *os.File
	over    chan struct{} // closed when the limit was exceeded
	done    chan struct{} // closed when reading ended; the fields below are final then
	buf     []byte
	dropped int64
}

// read starts reading r. Past limit it goes on and drops (drain), so that a
// talkative helper is not blocked, or stops.
func read(r *os.File, limit int, drain bool) *capture {
	c := &capture{r: r, over: make(chan struct{}), done: make(chan struct{})}
	go c.loop(limit, drain)
	return c
}

func (c *capture) loop(limit int, drain bool) {
	defer close(c.done)
	chunk := make([]byte, 32<<10)
	for {
		n, err := c.r.Read(chunk)
		keep := min(n, limit-len(c.buf))
		c.buf = append(c.buf, chunk[:keep]...)
		if n > keep {
			if c.dropped == 0 {
				close(c.over)
			}
			c.dropped += int64(n - keep)
			if !drain {
				return
			}
		}
		if err != nil { // end of file, or the deadline that ends the wait for it
			return
		}
	}
}

// bytes returns what was kept; only valid after done.
func (c *capture) bytes() []byte { return c.buf }

// exceeded reports whether more came than was kept; only valid after done.
func (c *capture) exceeded() bool { return c.dropped > 0 }
