package sequence

import (
	"crypto/rand"
	"encoding/hex"
)

// newNonce makes what a node signs with its new key: 16 random bytes in hex.
func newNonce() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}
