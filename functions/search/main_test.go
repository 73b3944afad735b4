package main

import (
	"encoding/json"
	"testing"

	"github.com/pelton-run/pelton/sdk"
	"github.com/pelton-run/pelton/sdk/sdktest"
)

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"multi-agent": `"multi-agent"`, "don't panic": `"don't" "panic"`, `say "hi"`: `"say" """hi"""`, "": "", "  \t": "", "a OR *": `"a" "OR" "*"`, "nul\x00byte": `"nul" "byte"`,
	} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestHandle(t *testing.T) {
	tests := []struct{ body, code string }{{`{"q":"x"}`, ""}, {"\xEF\xBB\xBF" + `{"q":"x","limit":5}`, ""}, {`{"q":""}`, ""}, {`nonsense`, "400"}, {``, "400"}, {`{"q":"x","limit":1000}`, "400"}}
	for _, tt := range tests {
		h := sdktest.New()
		h.OnQuery = func(sdktest.Statement) (*sdk.Rows, error) {
			return sdk.NewRows([]string{"1", "2", "3", "4", "5", "6", "7", "8"}, "9007199254740993", "ext", "T", nil, nil, nil, nil, int64(9007199254740993)), nil
		}
		msg := sdk.NewMsg("search.videos", nil, []byte(tt.body))
		h.Handle(t.Context(), handle, msg)
		a := msg.Answered()
		if a == nil || a.Code != tt.code {
			t.Errorf("%s: answered %+v, want code %q", tt.body, a, tt.code)
			continue
		}
		var got struct{ Hits []Hit }
		if a.Code == "" && json.Unmarshal(a.Data, &got) == nil && len(got.Hits) == 1 && got.Hits[0].Revision != 9007199254740993 {
			t.Errorf("revision = %d, and lost digits", got.Hits[0].Revision)
		}
	}
}
