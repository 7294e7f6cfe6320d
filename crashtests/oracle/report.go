package oracle

import (
	"encoding/json"
	"fmt"
	"time"
)

// Report is the part of `provctl inspect --json` that is judged: the documented output, not the program's types.
type Report struct {
	Schema  string
	Worker  *Worker
	Journal struct {
		ID         string
		Epoch, Seq uint64
	}
	Counts struct{ Jobs, Results, Receipts map[string]int }
	Items  []Item
	Nodes  []Out
}

// Worker is what a running worker says of itself.
type Worker struct {
	PID       int
	State     string
	Connected bool
}

// Item is an open receipt.
type Item struct {
	Receipt, Node, Action, Status, Why, Request string
	Version                                     uint64
	Since, Horizon                              time.Time
	Incarnation                                 struct{ PID, Start int64 }
	Commands                                    []struct{ Run string }
}

// Out is a node that is not taken at present.
type Out struct{ Node, State, Result string }

const unknown = "unknown"

// ReadReport decodes what inspect printed. Another schema than the one it knows is an error.
func ReadReport(text []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("inspect --json: %w in %.300s", err, text)
	}
	if r.Schema != "provctl.inspect/1" {
		return r, fmt.Errorf("inspect --json: schema %q is not the one that the oracle knows", r.Schema)
	}
	return r, nil
}

// open finds a receipt among the open ones.
func (r Report) open(receipt string) (Item, bool) {
	for _, i := range r.Items {
		if i.Receipt == receipt {
			return i, true
		}
	}
	return Item{}, false
}

// ofNode finds the open receipt of a node.
func (r Report) ofNode(node string) (Item, bool) {
	for _, i := range r.Items {
		if i.Node == node {
			return i, true
		}
	}
	return Item{}, false
}
