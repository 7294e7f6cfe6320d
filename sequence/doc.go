// Package sequence is one node's provisioning cycle, step by step: facts, the helper's advice, and effects, each of which
// follows the protocol of docs/design.md "One effect": receipt, fence, publish, wait, classify, settle.
//
// A pass owns no state of its own. What has been done is in the journal, so a pass that follows a crash starts from the top
// and skips what the history of the node's incarnation shows as applied.
package sequence
