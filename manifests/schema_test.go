package manifests

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/invopop/jsonschema"
)

// unit is the schema of a text with a unit.
func unit(pattern, example string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern, Examples: []any{example}}
}

// ours are the schemas of the types that are written in a form of their own.
func ours(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[Duration]():
		return unit(`^(\d+(\.\d+)?(ms|s|m|h|d))+$`, "30s")
	case reflect.TypeFor[Size]():
		return unit(`^\d+(B|KiB|MiB|GiB|TiB)$`, "64MiB")
	case reflect.TypeFor[Rate]():
		return unit(`^\d+(B|KiB|MiB|GiB)/s$`, "64KiB/s")
	case reflect.TypeFor[Pixels]():
		return unit(`^\d+[kM]$`, "50M")
	case reflect.TypeFor[Share]():
		return unit(`^\d+(\.\d+)?%$`, "5%")
	case reflect.TypeFor[Switch]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "boolean"}, {Enum: []any{"on", "off"}}}}
	case reflect.TypeFor[PublishGrant]():
		object := (&jsonschema.Reflector{DoNotReference: true, Anonymous: true}).Reflect(struct {
			Subject string `json:"subject"`
			Core    bool   `json:"core,omitempty"`
		}{})
		object.Version = ""
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, object}}
	}
	return nil
}

// TestSchema keeps the JSON schemas, from which editors complete, in step with
// the types. Run with -update after a change.
func TestSchema(t *testing.T) {
	for file, v := range map[string]any{"manifest.schema.json": Manifest{}, "streams.schema.json": Streams{}, "pelton.schema.json": Host{}} {
		r := jsonschema.Reflector{Mapper: ours, Anonymous: true, RequiredFromJSONSchemaTags: true}
		if err := r.AddGoComments("github.com/pelton-run/pelton/manifests", "./", jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
		b, err := json.MarshalIndent(r.Reflect(v), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, file, append(b, '\n'))
	}
}
