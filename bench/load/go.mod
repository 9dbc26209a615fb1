module klamm.example/load

go 1.26.8

require github.com/twmb/franz-go/pkg/kmsg v1.15.0
