package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Types of control messages. All but msgAnswer go from the node to the fleet.
const (
	msgHello  = "hello"  // first on a connection: names the node and its process
	msgReady  = "ready"  // the instance runs: connected and subscribed
	msgLink   = "link"   // the connection to the broker came or went
	msgCount  = "count"  // a request of another agent
	msgBegin  = "begin"  // a provision request is about to run; answered
	msgResume = "resume" // a detached request waits for its release; answered
	msgEnd    = "end"    // a provision request has run; answered
	msgNote   = "note"   // something for the fleet's log
	msgAnswer = "answer" // the fleet's answer to begin, resume or end
)

// maxLine bounds one control message; a huge altered reply is the largest.
const maxLine = 16 << 20

var errLineTooLong = errors.New("control message too long")

// message is one line on the control socket.
type message struct {
	Type      string `json:"t"`
	ID        uint64 `json:"id,omitempty"`
	Node      string `json:"node,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Boot      int    `json:"boot,omitempty"`
	Start     int64  `json:"start,omitempty"`
	Mode      Mode   `json:"mode,omitempty"`
	Action    string `json:"action,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Caller    string `json:"caller,omitempty"`
	Sender    string `json:"sender,omitempty"`
	Status    int    `json:"status"`
	Text      string `json:"text,omitempty"`
	Up        bool   `json:"up,omitempty"`
	Version   string `json:"version,omitempty"`
	Fault     *Fault `json:"fault,omitempty"`
}

// lineConn sends and receives messages; sends may come from several goroutines.
type lineConn struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex
}

func newLineConn(conn net.Conn) *lineConn {
	return &lineConn{conn: conn, in: bufio.NewReaderSize(conn, 4096)}
}

func (c *lineConn) send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a control message: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A stopped peer must not stop its fleet: its buffer is full only after thousands of answers.
	if err = c.conn.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	if _, err = c.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	return nil
}

func (c *lineConn) receive() (message, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return message{}, errLineTooLong
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return message{}, err
		}
		break
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("control message: %w", err)
	}
	return m, nil
}

// isClosed tells the ordinary end of a control channel from a fault in it.
func isClosed(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) }
