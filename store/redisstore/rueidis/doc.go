// Package rueidisstore keeps the counts of all instances of a service in Redis, as package
// redisstore does, through a client of rueidis: standalone, behind Sentinel or in a Cluster.
//
//	addrs := []string{"127.0.0.1:6379"}
//	client, err := rueidisstore.NewClient(rueidis.ClientOption{InitAddress: addrs})
//	if err != nil {
//		log.Fatal(err)
//	}
//	store, err := rueidisstore.New(client, redisstore.Options{Prefix: "shop:"})
//
// A lone caller has its answer sooner than through go-redis, because rueidis does less for each
// call. Stores on both clients share their counts. The file docs/redis.md says which client is for
// whom.
//
// The steps of many callers share script calls here too, since a script that decides many steps
// takes Redis less time than many scripts in one pipeline. Each call has a connection to itself
// while it lasts, as a blocking command of rueidis has, whatever the options of the client. So
// its caller writes and reads by itself, and a connection whose call is late is closed. A client
// without the options of [NewClient] has large buffers for each connection, which take their time
// when many are made.
//
// A connection that Redis has closed while it was idle is found within a second. A call that comes
// before fails, because it cannot be known whether its script ran.
package rueidisstore
