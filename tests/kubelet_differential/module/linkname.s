// The declaration of a function without a body, which go:linkname needs, requires an assembly file in the package.
