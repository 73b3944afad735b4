module github.com/pelton-run/pelton/functions

go 1.26

require (
	github.com/pelton-run/pelton/sdk v0.0.0
	github.com/valyala/fastjson v1.6.10
)

replace github.com/pelton-run/pelton/sdk => ../sdk
