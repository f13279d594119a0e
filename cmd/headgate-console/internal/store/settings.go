package store

// Setting returns the value of a setting, or ErrNotFound.
func (t *Tx) Setting(name string) (string, error) {
	return readOne[string](t, "SELECT value FROM settings WHERE name = ?", name)
}

const setSetting = "REPLACE INTO settings (name, value) VALUES (?, ?)"

// SetSetting writes the value of a setting.
func (t *Tx) SetSetting(name, value string) error { return t.exec(setSetting, name, value) }
