package journal

import "time"

// Committing says for how long the commit that is under way has been, by the monotonic clock; false if none is. It never waits, however long
// the disk does.
func (j *Journal) Committing() (time.Duration, bool) {
	since := j.committing.Load()
	if since == nil {
		return 0, false
	}
	return time.Since(*since), true
}
