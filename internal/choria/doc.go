// Package choria is the RPC engine: it talks to Choria servers in provisioning mode over one shared connection that never
// buffers, so that "published" and "not published" mean what they say.
//
// An effect is prepared first (its request id is chosen and its TTL clock starts), then its receipt is written by others, then
// it is published at most once through Publish, which asks the fence immediately before. Facts may be asked again and are
// retried here; effects never are. Everything that arrives is bounded in size and checked for sender and request id before
// anything else looks at it.
//
// Apart from internal/fleet and cmd it is the only package that imports go-choria. Facts about Choria cite go-choria v0.30.2
// by file and line.
package choria
