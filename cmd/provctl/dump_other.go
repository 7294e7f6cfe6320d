//go:build !linux

package main

// keepSecretsInMemory does nothing where the service manager has to forbid core dumps.
func keepSecretsInMemory() error { return nil }
