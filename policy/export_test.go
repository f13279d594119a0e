package policy

// CheckJSON is compared with another implementation.
var CheckJSON = checkJSON

const MaxDepth = maxDepth
