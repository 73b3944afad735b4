// Package runtime is the domain: one delivery from arrival to settlement
// (dispatch.go), the pure decision what becomes of it (dispose.go), and the
// figures that a function keeps.
//
// It knows neither NATS nor wasm. Sources of deliveries (runtime/trigger) call
// [Function.Dispatch]; the guest is behind [Invoker] (runtime/engine).
package runtime
