// Package demo is the self-contained demonstration: the shipped functions do
// their whole job on this machine, against stand-ins for the outside world (a
// picture origin, a CDN and IndexNow), and the outcome is checked against what
// the published events must lead to.
package demo
