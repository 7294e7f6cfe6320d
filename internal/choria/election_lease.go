package choria

import (
	"fmt"
	"time"
)

const (
	shortestTTL = 500 * time.Millisecond // below it a lease is shorter than what a broker may need to answer
	longestTTL  = time.Hour              // as Choria's own election (providers/election/streams/election.go:127)
)

// lease is what we hold of the key. The zero lease holds nothing.
type lease struct {
	revision uint64        // that our last write got
	from     time.Time     // before that write was sent
	length   time.Duration // how long we trust it
	ready    time.Time     // when the waiting after the win ends
}

// lengthOf is how much of a key's life a lease uses.
func lengthOf(ttl time.Duration) time.Duration { return ttl - ttl/4 }

func (l lease) valid(now time.Time) bool { return l.revision != 0 && elapsed(l.from, now) < l.length }

// end is when the lease lapses, on the clock whose time it shows.
func (l lease) end() time.Time { return l.from.Add(l.length) }

// renewed extends the lease by a write that was sent at a time and got a revision, on top of our last one.
func (l lease) renewed(revision uint64, sent time.Time, ttl time.Duration) lease {
	l.revision, l.from, l.length = revision, sent, lengthOf(ttl)
	return l
}

// won is the first lease of a chain. The waiting counts from the answer: the former leader's lease ended before the broker
// took our write, and that was before the answer.
func won(revision uint64, sent, answered time.Time, ttl, wait time.Duration) lease {
	l := lease{}.renewed(revision, sent, ttl)
	l.ready = answered.Add(max(wait, l.length))
	return l
}

// elapsed is how much time passed, on whichever of the monotonic and the wall clock says more.
func elapsed(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

// checkTTL refuses a bucket that cannot decide who leads.
func checkTTL(ttl time.Duration) error {
	if ttl < shortestTTL || ttl > longestTTL {
		return fmt.Errorf("the keys of bucket %s live for %s (0s: for ever); set plugin.choria.network.stream.leader_election_ttl on the broker to %s to %s, best 1m",
			electionBucket, ttl, shortestTTL, longestTTL)
	}
	return nil
}
