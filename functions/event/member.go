package event

import "github.com/valyala/fastjson"

// member is what is read of an event's object. One pass over the object finds all
// of them: looking up each one's name costs more than parsing the object did.
type member int

const (
	schema member = iota
	id
	revision
	source
	title
	category
	path
	external
	picture
	region
	channelID
	channel
	publishedAt
	occurredAt
	tags
	urls
	members
)

// wanted is a name, and what it stands for.
type wanted struct {
	name string
	at   member
}

// prepare makes the look-ups of what is wanted. The same name may stand for several
// members.
func (c *Config) prepare() {
	c.members = &[members]string{schema: "schema", id: c.ID, revision: c.Revision, source: "source", title: "title", category: "category",
		path: "path", external: c.External, picture: c.Picture, region: c.Region, channelID: "channel_id", channel: "channel",
		publishedAt: "published_at", occurredAt: "occurred_at", tags: "tags", urls: "urls"}
	for at, name := range c.members {
		for len(c.wanted) <= len(name) {
			c.wanted = append(c.wanted, nil)
		}
		c.wanted[len(name)] = append(c.wanted[len(name)], wanted{name, member(at)})
	}
}

// collect finds the wanted members of an object. Of a name that comes twice the
// first one counts.
func (r *reader) collect(c *Config, v *fastjson.Value) {
	if c.members == nil {
		c.prepare()
	}
	r.names = c.members
	v.GetObject().Visit(func(key []byte, v *fastjson.Value) {
		if len(key) >= len(c.wanted) {
			return
		}
		for _, w := range c.wanted[len(key)] {
			if w.name == string(key) && r.values[w.at] == nil {
				r.values[w.at] = v
			}
		}
	})
}
