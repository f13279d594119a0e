package store

// Setting returns the value of a setting, or ErrNotFound.
func (t *Tx) Setting(name string) (string, error) {
	return readOne(t, scanText, "SELECT value FROM settings WHERE name = ?", name)
}

// SetSetting writes the value of a setting.
func (t *Tx) SetSetting(name, value string) error {
	if _, err := t.exec("DELETE FROM settings WHERE name = ?", name); err != nil {
		return err
	}
	_, err := t.exec("INSERT INTO settings (name, value) VALUES (?, ?)", name, value)
	return err
}
