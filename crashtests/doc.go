// Package crashtests proves the promise against the unmodified program: a real broker, real Choria servers, a worker in a
// process of its own that is killed, and an oracle that knows only the nodes' own effect logs and what provctl prints.
package crashtests
