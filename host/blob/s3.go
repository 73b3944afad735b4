package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pelton-run/pelton/host"
)

// S3 says where a bucket of an S3 service is, and who asks.
type S3 struct {
	Endpoint             string // https://host[:port]
	Bucket, Region       string
	Prefix               string // in front of every key
	AccessKey, SecretKey string // neither for a bucket that is open
}

// objects is a store in an S3 bucket.
type objects struct {
	client    *minio.Client
	transport *http.Transport
	bucket    string
	prefix    string
}

// OpenS3 opens a store in a bucket of an S3 service, which must exist. It asks
// nothing yet: a service that is away is the first request's trouble.
func OpenS3(s S3, writable bool) (*Store, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse endpoint: %w", err)
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("make transport: %w", err)
	}
	transport.Proxy = nil
	options := &minio.Options{Secure: u.Scheme == "https", Region: s.Region, Transport: transport, MaxRetries: 3}
	if s.AccessKey != "" {
		options.Creds = credentials.NewStaticV4(s.AccessKey, s.SecretKey, "")
	}
	client, err := minio.New(u.Host, options)
	if err != nil {
		return nil, fmt.Errorf("make S3 client: %w", err)
	}
	return &Store{backend: &objects{client: client, transport: transport, bucket: s.Bucket, prefix: s.Prefix}, writable: writable}, nil
}

func (o *objects) close() error {
	o.transport.CloseIdleConnections()
	return nil
}

func (o *objects) put(ctx context.Context, p *host.BlobPut) (string, error) {
	options := minio.PutObjectOptions{ContentType: cmp.Or(p.ContentType, contentType(p.Key)), UserMetadata: mapped(p.Metadata), DisableMultipart: true, SendContentMd5: true}
	options.DisableContentSha256 = len(p.Data) == 0 // the client would send no length with it
	switch p.If {
	case "":
	case host.IfNew:
		options.SetMatchETagExcept("*")
	default:
		options.SetMatchETag(p.If)
	}
	info, err := o.client.PutObject(ctx, o.bucket, o.prefix+p.Key, bytes.NewReader(p.Data), int64(len(p.Data)), options)
	if code := minio.ToErrorResponse(err).Code; err != nil && p.If != "" && (code == "PreconditionFailed" || code == "ConditionalRequestConflict" || code == "NoSuchKey") {
		return "", conflict(p.Key)
	}
	if err != nil {
		return "", s3Error(ctx, "put", p.Key, err)
	}
	return info.ETag, nil
}

func (o *objects) stat(ctx context.Context, key string) (*host.BlobInfo, error) {
	info, err := o.client.StatObject(ctx, o.bucket, o.prefix+key, minio.StatObjectOptions{})
	if minio.ToErrorResponse(err).Code == "NoSuchKey" { // an answer to HEAD does not say what is missing
		if there, err := o.client.BucketExists(ctx, o.bucket); err == nil && !there {
			return nil, host.Errorf(host.Unavailable, "blob: look at %q: NoSuchBucket", key)
		}
	}
	if err != nil {
		return nil, s3Error(ctx, "look at", key, err)
	}
	info.Key = o.prefix + key
	described := o.describe(info)
	return &described, nil
}

func (o *objects) get(ctx context.Context, key string, part host.Range, limit int64) (*host.Blob, error) {
	var options minio.GetObjectOptions
	if part.Offset > 0 || part.Length > 0 {
		last := int64(0) // the end
		if part.Length > 0 {
			last = part.Offset + part.Length - 1
		}
		if last < 0 || options.SetRange(part.Offset, last) != nil {
			return nil, host.Errorf(host.Invalid, "blob: a part from byte %d is asked for", part.Offset)
		}
	}
	body, info, header, err := minio.Core{Client: o.client}.GetObject(ctx, o.bucket, o.prefix+key, options)
	if minio.ToErrorResponse(err).Code == "InvalidRange" {
		return o.nothing(ctx, key, part)
	}
	if err != nil {
		return nil, s3Error(ctx, "get", key, err)
	}
	defer body.Close()
	length := info.Size
	if length > limit {
		return nil, tooLarge(key, length, limit)
	}
	data, err := io.ReadAll(io.LimitReader(body, length+1))
	if err != nil {
		return nil, s3Error(ctx, "get", key, err)
	}
	if int64(len(data)) != length {
		return nil, host.Errorf(host.Unavailable, "blob: get %q: the service sent another length than it had said", key)
	}
	if _, total, ok := strings.Cut(header.Get("Content-Range"), "/"); ok {
		if info.Size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return nil, host.Errorf(host.Unavailable, "blob: get %q: the service does not say of how many bytes it sent a part", key)
		}
	}
	info.Key = o.prefix + key
	return &host.Blob{BlobInfo: o.describe(info), Data: data}, nil
}

// nothing answers a part that the service refuses to give: there is nothing there,
// which is fine at the very end.
func (o *objects) nothing(ctx context.Context, key string, part host.Range) (*host.Blob, error) {
	info, err := o.stat(ctx, key)
	if err != nil {
		return nil, err
	}
	if _, err := part.Of(info.Size); err != nil {
		return nil, err
	}
	return &host.Blob{BlobInfo: *info}, nil
}

func (o *objects) remove(ctx context.Context, key string) error {
	if err := o.client.RemoveObject(ctx, o.bucket, o.prefix+key, minio.RemoveObjectOptions{}); err != nil {
		return s3Error(ctx, "delete", key, err)
	}
	return nil
}

func (o *objects) list(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	options := minio.ListObjectsOptions{Prefix: o.prefix + prefix, Recursive: true, MaxKeys: limit}
	if after != "" {
		options.StartAfter = o.prefix + after
	}
	var found []host.BlobInfo
	for info := range o.client.ListObjects(ctx, o.bucket, options) {
		if info.Err != nil {
			return nil, s3Error(ctx, "list", prefix, info.Err)
		}
		if info.Key <= options.StartAfter { // some services do not know start-after
			continue
		}
		if found = append(found, o.describe(info)); len(found) == limit {
			break
		}
	}
	return found, nil
}

func (o *objects) describe(info minio.ObjectInfo) host.BlobInfo {
	key := strings.TrimPrefix(info.Key, o.prefix)
	kind := info.ContentType
	if kind == "" { // lists do not have it
		kind = contentType(key)
	}
	return host.BlobInfo{Key: key, ContentType: kind, Size: info.Size, Modified: info.LastModified, ETag: info.ETag, Metadata: sorted(info.UserMetadata)}
}

// s3Error keeps the service's code, and nothing of the request: URLs may be signed.
func s3Error(ctx context.Context, verb, key string, err error) error {
	answer := minio.ToErrorResponse(err)
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx)
	case answer.Code == "NoSuchKey":
		return notFound(key)
	case answer.Code == "AccessDenied":
		return host.Errorf(host.Unavailable, "blob: %s %q: the service denies access; look at the host's keys", verb, key)
	case answer.Code != "":
		return host.Errorf(host.Unavailable, "blob: %s %q: %s", verb, key, answer.Code)
	}
	var request *url.Error // it would name the URL
	if errors.As(err, &request) {
		err = errors.New(strings.ReplaceAll(request.Err.Error(), request.URL, "the service"))
	}
	return host.Errorf(host.Unavailable, "blob: %s %q: %v", verb, key, err)
}
