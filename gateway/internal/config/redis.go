package config

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// redisURL reads the URL of a Redis.
func redisURL(to **redis.UniversalOptions) func(string) error {
	return func(text string) error {
		o, err := redis.ParseURL(text)
		if err != nil { // its text may show the password
			return errors.New("it is not of the form redis://user:password@host:port/0")
		}
		*to = &redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig}
		return nil
	}
}
