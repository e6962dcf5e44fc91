module trimtab.dev/benchmarks/admission-probe

go 1.26.0
