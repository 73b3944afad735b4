// Package sdk is what the author of a Pelton function imports. A function is a
// program whose init registers a handler and whose main is empty:
//
//	func init() { sdk.Handle(handle) }
//	func main() {}
//
//	func handle(ctx context.Context, msg *sdk.Msg) error {
//		return sdk.Publish(ctx, "hello.world", msg.Data())
//	}
//
// It is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o hello.wasm .
//
// A handler that returns nil acks its message. [Term] gives up on it, and
// [NakWithDelay] asks for it again after a delay; after any other error it comes
// again as the manifest says. log/slog, os.Getenv (the manifest's config) and
// time.Now work as ever.
//
// Pass the handler's ctx to every call: it says which message the call is for.
//
// Handlers are tested natively, with plain go test; package sdktest stands in
// for the host there. The border to the host is described in ABI.md.
package sdk
