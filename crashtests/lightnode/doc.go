// Package lightnode has Choria servers in provisioning mode that cost a test next to nothing: they live in its process.
//
// Each connects to the real broker of a fleet as a real server does, with a provisioning token of its own and under its own
// name, and requests pass through go-choria's own decoding, filters, dispatch, discovery agent and rpcutil agent. Its
// provision agent is written anew, because go-choria's keeps its lock, its keys and its mutex once per process. A
// conformance test sends the same requests to a real node and to a light one and compares all that can be seen.
//
// A light node keeps the same effect log as a real one and obeys the same faults. After a restart it reads its own
// server.conf. If that makes it a provisioned server it leaves the provisioning account and is only marked so: it does not
// join the collective.
package lightnode
