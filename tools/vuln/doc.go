// Command vuln runs govulncheck on provctl with the vulnerability database that the module golang.org/x/vulndb carries, so that the
// module proxy is all that it reaches and the checksum database vouches for both.
//
// It exits 0 if nothing that is called is vulnerable, or only what allow.txt lets wait; 1 if something is; 2 if it could not check.
package main
