module github.com/headgate/headgate/examples/huma

go 1.25.0

require (
	github.com/danielgtaylor/huma/v2 v2.37.2
	github.com/headgate/headgate v0.1.0
)
