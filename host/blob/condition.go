package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
)

// chunkSize is that of an object bucket's parts.
const chunkSize = 128 << 10

// putIf stores an object if what is known of its name has not changed. The client's
// Put has no conditions, so the parts and the description are written here, as
// ADR-20 says: the parts under a token of their own, then the description, which
// the stream takes only if it is to follow the one that was looked at.
func (b *bucket) putIf(ctx context.Context, meta jetstream.ObjectMeta, p *host.BlobPut) (string, error) {
	stream, err := b.js.Stream(ctx, "OBJ_"+b.name)
	if err != nil {
		return "", objectError(ctx, "put", p.Key, err)
	}
	last, err := b.lastOf(ctx, stream, p)
	if err != nil {
		return "", err
	}
	meta.Opts = &jetstream.ObjectMetaOptions{ChunkSize: chunkSize}
	info := jetstream.ObjectInfo{ObjectMeta: meta, Bucket: b.name, NUID: rand.Text(), Size: uint64(len(p.Data))}
	digest := sha256.New()
	digest.Write(p.Data)
	info.Digest = jetstream.GetObjectDigestValue(digest)
	parts := "$O." + b.name + ".C." + info.NUID
	for rest := p.Data; len(rest) > 0; info.Chunks++ {
		n := min(len(rest), chunkSize)
		if _, err := b.js.Publish(ctx, parts, rest[:n]); err != nil {
			return "", errors.Join(objectError(ctx, "put", p.Key, err), stream.Purge(context.WithoutCancel(ctx), jetstream.WithPurgeSubject(parts)))
		}
		rest = rest[n:]
	}
	body, err := json.Marshal(info)
	if err != nil {
		return "", host.Errorf(host.Failed, "blob: put %q: %v", p.Key, err)
	}
	m := &nats.Msg{Subject: b.described(p.Key), Header: nats.Header{"Nats-Rollup": {"sub"}}, Data: body}
	_, err = b.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last.sequence))
	var refused *jetstream.APIError
	if errors.As(err, &refused) { // it is not stored, so nothing needs the parts
		err = stream.Purge(context.WithoutCancel(ctx), jetstream.WithPurgeSubject(parts))
		if refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
			return "", conflict(p.Key)
		}
		return "", errors.Join(objectError(ctx, "put", p.Key, refused), err)
	}
	if err != nil {
		return "", objectError(ctx, "put", p.Key, err)
	}
	if last.parts != "" { // what cannot be purged is of no more use, and in nobody's way
		stream.Purge(ctx, jetstream.WithPurgeSubject("$O."+b.name+".C."+last.parts))
	}
	return info.NUID, nil
}

// described is the subject of an object's description.
func (b *bucket) described(key string) string {
	return "$O." + b.name + ".M." + base64.URLEncoding.EncodeToString([]byte(key))
}

// description is where an object's is in the stream, and what its parts are under.
type description struct {
	sequence uint64
	parts    string
}

// lastOf returns the last description under a name, if the condition holds of it.
func (b *bucket) lastOf(ctx context.Context, stream jetstream.Stream, p *host.BlobPut) (description, error) {
	msg, err := stream.GetLastMsgForSubject(ctx, b.described(p.Key))
	if errors.Is(err, jetstream.ErrMsgNotFound) && p.If == host.IfNew {
		return description{}, nil
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return description{}, conflict(p.Key)
	}
	if err != nil {
		return description{}, objectError(ctx, "put", p.Key, err)
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		return description{}, host.Errorf(host.Failed, "blob: put %q: what the bucket knows of it cannot be read: %v", p.Key, err)
	}
	if holds := info.Deleted && p.If == host.IfNew || !info.Deleted && p.If == info.NUID && !isLink(&info); !holds {
		return description{}, conflict(p.Key)
	}
	return description{msg.Sequence, info.NUID}, nil
}
