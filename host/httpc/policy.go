// Package httpc is the http capability: requests to the origins that a manifest
// grants, with headers that the host fills in and the guest never sees.
package httpc

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// MaxURL bounds a request's URL, in bytes.
const MaxURL = 8 << 10

// rule is one grant, with its secrets filled in.
type rule struct {
	scheme, host, port string // host may begin with *. for whole labels; "" with public
	public             bool
	methods, paths     []string
	headers            map[string]string
}

func newRule(g manifests.HTTPGrant, headers map[string]string) (rule, error) {
	r := rule{public: g.Public, methods: g.Methods, paths: g.Paths, headers: headers}
	if g.Public {
		return r, nil
	}
	u, err := url.Parse(g.Origin)
	if err != nil {
		return r, err
	}
	r.scheme, r.host, r.port = origin(u)
	return r, nil
}

// origin returns the parts that two URLs of one origin share: the port is
// never empty, the host is lower case without a trailing dot.
func origin(u *url.URL) (scheme, name, port string) {
	port = u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme, strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port
}

// target parses the URL of a request and refuses what could be read in two ways.
func target(raw string) (*url.URL, error) {
	if len(raw) > MaxURL || strings.ContainsAny(raw, "\\\x00\r\n\t ") {
		return nil, host.Errorf(host.Invalid, "http: the URL is too long or has characters that do not belong in one")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, host.Errorf(host.Invalid, "http: the URL does not parse")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, host.Errorf(host.Invalid, "http: scheme %q is neither http nor https", u.Scheme)
	case u.User != nil:
		return nil, host.Errorf(host.Invalid, "http: a user in the URL is not permitted")
	case u.Hostname() == "" || strings.Contains(u.Host, "%"):
		return nil, host.Errorf(host.Invalid, "http: the URL has no plain host")
	}
	u.Fragment = ""
	if net.ParseIP(u.Hostname()) != nil {
		return u, nil
	}
	name, err := idna.Lookup.ToASCII(strings.TrimSuffix(u.Hostname(), "."))
	if err != nil {
		return nil, host.Errorf(host.Invalid, "http: %q cannot be a host's name", u.Hostname())
	}
	if port := u.Port(); port != "" {
		name = net.JoinHostPort(name, port)
	}
	u.Host = name
	return u, nil
}

// permits reports whether the rule grants a request.
func (r *rule) permits(method string, u *url.URL) bool {
	if !slices.Contains(r.methods, method) {
		return false
	}
	if !r.public {
		scheme, name, port := origin(u)
		if scheme != r.scheme || port != r.port || !hostMatches(r.host, name) {
			return false
		}
	}
	return len(r.paths) == 0 || slices.ContainsFunc(r.paths, func(p string) bool { return pathMatches(p, u.EscapedPath()) })
}

// hostMatches compares hosts; *.example.com stands for one or more labels
// before example.com.
func hostMatches(pattern, name string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, suffix) && len(name) > len(suffix)
	}
	return pattern == name
}

// pathMatches compares paths. One with dot segments, plain or escaped, matches
// nothing: the server would resolve them to another path.
func pathMatches(pattern, path string) bool {
	if path == "" {
		path = "/"
	}
	lower := strings.ToLower(path)
	for _, segment := range strings.Split(strings.ReplaceAll(strings.ReplaceAll(lower, "%2f", "/"), "%2e", "."), "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return path == pattern
}

// hostHeaders are those that the host or its HTTP library set, never a guest.
var hostHeaders = []string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect", "keep-alive", "accept-encoding", "forwarded", "via"}

// checkHeader refuses a header that a guest must not set.
func checkHeader(name, value string) error {
	lower := strings.ToLower(name)
	if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return host.Errorf(host.Invalid, "http: header %q is not valid", name)
	}
	if slices.Contains(hostHeaders, lower) || strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, "x-forwarded-") {
		return host.Errorf(host.Denied, "http: header %s is set by the host", name)
	}
	return nil
}
