package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

func (o *objects) put(ctx context.Context, key, kind string, data []byte) error {
	if kind == "" {
		kind = contentType(key)
	}
	options := minio.PutObjectOptions{ContentType: kind, DisableMultipart: true, SendContentMd5: true}
	options.DisableContentSha256 = len(data) == 0 // the client would send no length with it
	if _, err := o.client.PutObject(ctx, o.bucket, o.prefix+key, bytes.NewReader(data), int64(len(data)), options); err != nil {
		return s3Error(ctx, "put", key, err)
	}
	return nil
}

func (o *objects) get(ctx context.Context, key string, limit int64) (*host.Blob, error) {
	object, err := o.client.GetObject(ctx, o.bucket, o.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, s3Error(ctx, "get", key, err)
	}
	defer object.Close()
	info, err := object.Stat()
	if err != nil {
		return nil, s3Error(ctx, "get", key, err)
	}
	if info.Size > limit {
		return nil, tooLarge(key, info.Size, limit)
	}
	data, err := io.ReadAll(io.LimitReader(object, limit+1))
	if err != nil {
		return nil, s3Error(ctx, "get", key, err)
	}
	if int64(len(data)) > limit { // the service had said less
		return nil, tooLarge(key, int64(len(data)), limit)
	}
	info.Key = o.prefix + key
	blob := &host.Blob{BlobInfo: o.describe(info), Data: data}
	blob.Size = int64(len(data))
	return blob, nil
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
	return host.BlobInfo{Key: key, ContentType: kind, Size: info.Size, Modified: info.LastModified}
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
		err = request.Err
	}
	return host.Errorf(host.Unavailable, "blob: %s %q: %v", verb, key, err)
}
