package sdk

import (
	"context"
	"log/slog"
)

func init() { slog.SetDefault(slog.New(&logHandler{})) }

// logHandler sends the records of log/slog to the host, with the delivery that
// the context is for. The manifest's limits bound them.
type logHandler struct {
	attrs  [][2]string
	prefix string
}

// Enabled reports true: the host filters.
func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle sends one record.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := h.attrs[:len(h.attrs):len(h.attrs)]
	r.Attrs(func(a slog.Attr) bool {
		attrs = appendAttr(attrs, h.prefix, a)
		return true
	})
	logRecord(ctx, int(r.Level), r.Message, attrs)
	return nil
}

// WithAttrs returns a handler whose records have more attributes.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := &logHandler{attrs: h.attrs[:len(h.attrs):len(h.attrs)], prefix: h.prefix}
	for _, a := range attrs {
		more.attrs = appendAttr(more.attrs, h.prefix, a)
	}
	return more
}

// WithGroup returns a handler whose attributes have names in a group.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{attrs: h.attrs, prefix: h.prefix + name + "."}
}

func appendAttr(attrs [][2]string, prefix string, a slog.Attr) [][2]string {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		return append(attrs, [2]string{prefix + a.Key, v.String()})
	}
	for _, member := range v.Group() {
		attrs = appendAttr(attrs, prefix+a.Key+".", member)
	}
	return attrs
}
