package credentials

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/choria-io/tokens"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// relativeBelow separates seconds from now from seconds since 1970: the
	// documented example, 157680000, means five years and not the year 1975.
	relativeBelow = 946684800 // 2000-01-01
	// latestExpiry is the last second that RFC 3339 can write.
	latestExpiry = 253402300799
	// minValidity is the existing provisioner's rule: a server token that would
	// live no longer gets the default validity.
	minValidity = time.Hour

	maxNames = 1000
)

// serverClaims are the members of a helper's server_claims that count. The rest
// of a token's claims are ours to set; if given they are ignored, as in the
// existing provisioner.
type serverClaims struct {
	Collectives       []string       `json:"collectives"`
	Permissions       *permissions   `json:"permissions"`
	Organization      string         `json:"ou"`
	AdditionalPublish []string       `json:"pub_subjects"`
	Expiry            jsontext.Value `json:"exp"`
}

type permissions struct {
	Submission  bool `json:"submission"`
	Streams     bool `json:"streams"`
	Governor    bool `json:"governor"`
	ServiceHost bool `json:"service_host"`
}

func (p *permissions) token() *tokens.ServerPermissions {
	if p == nil {
		return nil
	}
	return &tokens.ServerPermissions{Submission: p.Submission, Streams: p.Streams, Governor: p.Governor, ServiceHost: p.ServiceHost}
}

func parseClaims(raw []byte) (serverClaims, error) {
	var c serverClaims
	if len(raw) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, claimError("server_claims", plain(err), "make the helper print claims as choria's server tokens have them")
	}
	for claim, names := range map[string][]string{"server_claims.collectives": c.Collectives, "server_claims.pub_subjects": c.AdditionalPublish} {
		if len(names) > maxNames {
			return c, claimError(claim, "more than 1000 entries", "shorten the list")
		}
	}
	for _, subject := range c.AdditionalPublish {
		if subject == "" || strings.ContainsFunc(subject, notPrintable) {
			return c, claimError("server_claims.pub_subjects", short(subject)+" is empty or holds spaces or control characters", "write a subject")
		}
	}
	if strings.ContainsFunc(c.Organization, notPrintable) {
		return c, claimError("server_claims.ou", short(c.Organization)+" holds spaces or control characters", "write the organization's name, or leave it out")
	}
	return c, nil
}

// expiry returns when the token ends. Times to live of an hour or less, and
// times in the past, give the default validity.
func (c serverClaims) expiry(now time.Time, validity time.Duration) (time.Time, error) {
	fallback := now.Add(validity)
	const remedy = "write seconds from now, or seconds since 1970"
	text := string(c.Expiry)
	switch c.Expiry.Kind() {
	case 0, 'n':
		return fallback, nil
	case '"':
		text = strings.Trim(text, `"`)
	case '0':
	default:
		return time.Time{}, claimError("server_claims.exp", "it is not a number", remedy)
	}
	seconds, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(seconds):
		return time.Time{}, claimError("server_claims.exp", short(text)+" is not a number", remedy)
	case seconds < 0 || seconds > latestExpiry:
		return time.Time{}, claimError("server_claims.exp", short(text)+" is out of range", remedy)
	}
	end := time.Unix(int64(seconds), 0)
	if seconds < relativeBelow {
		end = now.Add(time.Duration(seconds) * time.Second)
	}
	if end.Sub(now) <= minValidity {
		return fallback, nil
	}
	return end, nil
}

// collectives picks the node's collectives: the claims, then the configuration's
// list, then the default of its security provider.
func (c serverClaims) collectives(configuration map[string]string) ([]string, error) {
	list, from := c.Collectives, "server_claims.collectives"
	if len(list) == 0 {
		from = "configuration.collectives"
		for name := range strings.SplitSeq(configuration["collectives"], ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, name)
			}
		}
	}
	if len(list) == 0 {
		if strings.TrimSpace(configuration["plugin.security.provider"]) == "choria" {
			return []string{"choria"}, nil
		}
		return []string{"mcollective"}, nil
	}
	for _, name := range list {
		// A wildcard would let the node listen in every collective.
		if name == "" || strings.ContainsAny(name, ".*>") || strings.ContainsFunc(name, notPrintable) {
			return nil, claimError(from, short(name)+" is not the name of a collective", "write names without dots, spaces, * or >")
		}
	}
	return list, nil
}

func notPrintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
