package fleet

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// controlClient is the node's end of the control channel.
type controlClient struct {
	*lineConn
	// done is closed when the channel ends.
	done chan struct{}

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan Fault
}

func dialControl(socket string) (*controlClient, error) {
	conn, err := net.DialTimeout("unix", socket, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connecting to the fleet: %w", err)
	}
	c := &controlClient{lineConn: newLineConn(conn), done: make(chan struct{}), waiting: map[uint64]chan Fault{}}
	go c.listen()
	return c, nil
}

func (c *controlClient) listen() {
	defer close(c.done)
	for {
		m, err := c.receive()
		if err != nil {
			return
		}
		c.mu.Lock()
		answer, ok := c.waiting[m.ID]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		if !ok || m.Type != msgAnswer || m.Fault == nil {
			continue
		}
		answer <- *m.Fault
	}
}

// ask sends m and waits for the fleet's answer. When the fleet ends meanwhile it never returns: the process is about to
// end, and nothing may run that the fleet did not see.
func (c *controlClient) ask(m message) Fault {
	answer := make(chan Fault, 1)
	c.mu.Lock()
	c.next++
	m.ID = c.next
	c.waiting[m.ID] = answer
	c.mu.Unlock()
	if err := c.send(m); err != nil {
		select {}
	}
	return <-answer
}
