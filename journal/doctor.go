package journal

// Format is the format of the journals that this program writes. It migrates older ones when it opens them, and refuses newer ones (ErrNewer).
const Format = formatVersion
