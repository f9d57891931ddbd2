module testbed/argo-workflows

go 1.26.0

require github.com/argoproj/argo-workflows/v3 v3.5.14
