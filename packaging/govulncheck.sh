#!/usr/bin/env bash
# Fails if provctl, as this Go builds it, calls anything that is known to be vulnerable. The module proxy is all it needs to reach.
# packaging/govulncheck.sh [VERSION]: of the database; "latest" for the newest. The scanner's version is in tools/vuln/go.mod, and what
# may wait, until when and why, in tools/vuln/allow.txt.
set -euo pipefail
cd "$(dirname "$0")/../tools/vuln"
database=v0.0.0-20261105234957-e22db6528018
go test .
exec go run . -root ../.. -db "${1:-$database}"
