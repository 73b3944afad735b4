// Package manifests says what a function is: it decodes a manifest strictly,
// fills in the defaults, validates it and computes its digest. It also decodes
// streams.yaml, the streams that a folder of functions needs.
//
// A manifest is YAML (JSON is YAML too). Everything that is wrong is reported
// as a [Problem] with file, line, column, field and a hint, so that a stranger
// can mend it.
package manifests
