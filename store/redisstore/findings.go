package redisstore

// Codes of findings. They are stable.
const (
	// CodeDeadlineIgnored marks a client without ContextTimeoutEnabled.
	CodeDeadlineIgnored = "HG006"

	// CodeEviction marks a server that may evict keys.
	CodeEviction = "HG007"

	// CodePermission marks a user that may not do what the store needs.
	CodePermission = "HG008"

	// CodeNoPrefix marks a store that was given no prefix, the name of its service.
	CodeNoPrefix = "HG012"

	// CodeOtherLimit marks counts to which two limits are applied.
	CodeOtherLimit = "HG013"

	// CodeBanList marks a user that may not do what lists of bans need. Bans hold without it.
	CodeBanList = "HG014"

	// CodeTooFar marks a server that is too far for the time of a call.
	CodeTooFar = "HG016"
)
