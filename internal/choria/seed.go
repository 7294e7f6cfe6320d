package choria

import (
	"encoding/hex"
	"fmt"

	fw "github.com/choria-io/go-choria/choria"
	"github.com/choria-io/tokens"
)

// checkSeed finds a seed that cannot sign for the token now. Otherwise the connection would be tried for ever, since the NATS
// library takes a failed signature for a reason to try again.
func checkSeed(f *fw.Framework) error {
	file, err := f.SignerSeedFile()
	if err != nil {
		return fmt.Errorf("plugin.security.choria.seed_file: %w", err)
	}
	bad := func(why string) error {
		return fmt.Errorf("plugin.security.choria.seed_file %s %s: give the seed that belongs to the token", file, why)
	}
	public, _, err := fw.Ed25519KeyPairFromSeedFile(file) // as the signer reads it: not even a line end may follow the digits
	if err != nil {
		return bad("cannot be used (" + err.Error() + ")")
	}
	token, _, err := f.SignerToken()
	if err != nil {
		return fmt.Errorf("the token of plugin.security.choria.token_file cannot be used: %w", err)
	}
	claims, err := tokens.ParseClientIDTokenUnverified(token)
	if err != nil {
		return fmt.Errorf("the token of plugin.security.choria.token_file cannot be used: %w", err)
	}
	if claims.PublicKey != hex.EncodeToString(public) {
		return bad("belongs to another key than the token")
	}
	return nil
}
