package limiter

// Codes of findings. They do not change.
const (
	// CodeUnheeded: a private or loopback peer sends X-Forwarded-For or
	// Forwarded, and a rule counts by the address of that peer.
	CodeUnheeded = "HG001"

	// CodeGinTrustsAll: a key is what gin.Context.ClientIP says, and the engine
	// trusts every proxy.
	CodeGinTrustsAll = "HG002"

	// CodeOneKey: all of the first requests under a rule fell on one key, which
	// is empty or the address of the peer.
	CodeOneKey = "HG003"

	// CodeTwice: a request met the same limiter twice.
	CodeTwice = "HG004"

	// CodeTooCostly: a request cost more than its limit can ever hold.
	CodeTooCostly = "HG005"
)
