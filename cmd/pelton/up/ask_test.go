package up

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// A function asks the services that it is granted, and hears what they say: an
// answer, an error, nothing in time, or that there is nobody.
func TestAsk(t *testing.T) {
	f := newFolder(t).add("asks", "testers/asks", "name: asks\ntriggers: [{request: svc.asks}]\nlimits: {hops: 3}\ntimeout: 5s\ngrants: {request: [svc.>]}\n")
	b := start(t, f, nil)
	s, err := micro.AddService(b.nc, micro.Config{Name: "echo", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for subject, handle := range map[string]micro.HandlerFunc{
		"svc.echo": func(r micro.Request) {
			r.Respond([]byte(string(r.Data()) + " from " + r.Headers().Get("X-From") + ", hop " + r.Headers().Get("Pelton-Hops")))
		},
		"svc.error":  func(r micro.Request) { r.Error("418", "short and stout", nil) },
		"svc.silent": func(micro.Request) {},
	} {
		if err := s.AddEndpoint(strings.TrimPrefix(subject, "svc."), handle, micro.WithEndpointSubject(subject)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the function answers", 20*time.Second, func() bool {
		_, err := b.nc.Request("svc.asks", []byte("svc.echo x"), time.Second)
		return err == nil
	})
	for _, tt := range []struct{ body, answer, fails string }{
		{"svc.echo hello", "hello from guest, hop 1", ""},
		{"svc.error x", "said service error 418: short and stout", ""},
		{"svc.silent x", "", "errno 7: request svc.silent: no answer in 500ms"},
		{"svc.nobody x", "", "errno 7: request svc.nobody: nobody answers there"},
		{"other.echo x", "", "errno 1: request: subject \"other.echo\" is not granted"},
		{"$JS.API.INFO x", "", "errno 1: request: subject \"$JS.API.INFO\" is not granted"},
		{"svc.* x", "", "errno 6: request: subject \"svc.*\""},
	} {
		msg, err := b.nc.Request("svc.asks", []byte(tt.body), 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", tt.body, err)
		}
		if fails := msg.Header.Get("Nats-Service-Error"); string(msg.Data) != tt.answer || !strings.Contains(fails, tt.fails) || (fails != "") != (tt.fails != "") {
			t.Errorf("%s: answered %q, failed %q; want %q, %q", tt.body, msg.Data, fails, tt.answer, tt.fails)
		}
	}
	// One that asks itself comes to an end.
	late := &nats.Msg{Subject: "svc.asks", Header: nats.Header{"Pelton-Hops": {"3"}}, Data: []byte("svc.echo x")}
	msg, err := b.nc.RequestMsg(late, 10*time.Second)
	if err != nil || !strings.Contains(msg.Header.Get("Nats-Service-Error"), "limits.hops is 3") {
		t.Errorf("at the end of a chain: %v, %v; want limits.hops to be named", msg, err)
	}
}
