module github.com/pelton-run/pelton/sdk

go 1.26
