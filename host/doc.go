// Package host is what a guest can ask for, as plain Go without wazero: the
// messages of an invocation, how they are settled, and the calls that reach
// databases, HTTP, blobs, key-value buckets, publishing and pictures.
//
// [Call] is the state of one invocation. runtime/engine translates a guest's
// calls into its methods; the capabilities behind it are interfaces declared
// here and implemented by the packages below host/.
package host
