module extant.example/extant/bindings/go

go 1.24
