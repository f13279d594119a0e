package rls

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls/limitfile"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// Options configure a Server. The zero value serves the policies of the engine without TLS.
type Options struct {
	// Config is a folder of files of envoyproxy/ratelimit, which are followed. "" means none.
	// A domain in it takes precedence over an application of the same name.
	Config string

	// Poll is the time between two looks into the folder; 0 means limitfile.DefaultPoll.
	Poll time.Duration

	// Debit names domains in which a descriptor with a hits_addend of its own is charged
	// beyond its limit too, because Envoy sends it when the answer has ended.
	Debit []string

	// ClosedAsError makes a call fail with UNAVAILABLE where the store failed and a limit
	// fails closed. Otherwise it is answered with OVER_LIMIT.
	ClosedAsError bool

	// Headers are those of answers; 0 means limiter.Draft8.
	Headers limiter.HeaderStyle

	// TLS is the server's side of TLS, with ClientCAs and ClientAuth for mutual TLS. nil
	// means none.
	TLS *tls.Config

	// MaxStreams bounds the calls at a time on one connection; 0 means DefaultMaxStreams.
	// Envoy queues what is above.
	MaxStreams uint32

	// MaxDecisions bounds the decisions at a time; 0 means DefaultMaxDecisions. Under more
	// load than the machine can bear, a call waits before its decision, where its deadline
	// ends it at no cost. Otherwise each decision would take longer, until they exceed the
	// time-out of the store, as if Redis were away.
	MaxDecisions int
}

const (
	// DefaultMaxStreams stands for a MaxStreams of 0.
	DefaultMaxStreams = 4096

	// DefaultMaxDecisions stands for a MaxDecisions of 0. It fills the four script calls of
	// redisstore.DefaultBatch that are in flight at a time when they are full.
	DefaultMaxDecisions = 512

	// MaxMessage is the largest message of a client in bytes.
	MaxMessage = 256 << 10

	// MaxDescriptors and MaxEntries bound the descriptors of a call and the entries of each.
	MaxDescriptors = 100
	MaxEntries     = 32

	maxHeaders  = 16 << 10 // bytes of the headers of a call
	handshake   = 10 * time.Second
	pingAfter   = 2 * time.Minute
	pingTimeout = 20 * time.Second
	minPing     = 10 * time.Second
	readyEvery  = time.Second

	// workers are goroutines that answer calls one after another, because a new one for
	// each call would spend a tenth of the CPU time in growing its stack. Calls beyond
	// get one each.
	workers = 512

	// The windows are fixed, because one that grows makes the server send a ping for each call
	// of a client that makes few, which the client has to answer. Messages are small. For one
	// that is larger than its window, gRPC opens the window.
	streamWindow = 64 << 10
	connWindow   = 1 << 20
)

// Server answers Envoy. It is safe for concurrent use.
type Server struct {
	pb.UnimplementedRateLimitServiceServer

	engine  *engine.Engine
	options Options
	log     *quietlog.Log
	apps    map[string]*limiter.Limiter
	files   atomic.Pointer[map[string]*fileDomain]
	folder  *limitfile.Folder // or nil
	calls   sync.Pool
	slots   chan struct{} // holds one element for each decision under way

	grpc   *grpc.Server
	health *health.Server
	end    context.CancelFunc // ends watchReady
	done   sync.WaitGroup     // of watchReady
	once   sync.Once          // for Close
}

// New returns a server of the limits of e and of the folder. The error names every mistake in
// the options and in the files. The caller must call Shutdown or Close, before it closes e.
func New(e *engine.Engine, o Options) (*Server, error) {
	if err := o.faults(); err != nil {
		return nil, err
	}

	o.Headers = cmp.Or(o.Headers, limiter.Draft8)
	o.Debit = slices.Clone(o.Debit)
	s := &Server{engine: e, options: o, log: quietlog.New(e.Logger()), apps: map[string]*limiter.Limiter{}}
	s.slots = make(chan struct{}, cmp.Or(o.MaxDecisions, DefaultMaxDecisions))
	s.files.Store(&map[string]*fileDomain{})
	s.calls.New = func() any { return &call{} }

	for _, app := range e.Apps() {
		l, err := e.Limiter(app, face(o.Headers))
		if err != nil {
			s.log.Close()
			return nil, err
		}
		s.apps[app] = l
	}

	if o.Config != "" {
		var err error
		folder := limitfile.FolderOptions{Poll: o.Poll, Logger: e.Logger()}
		s.folder, err = limitfile.Follow(o.Config, folder, s.useFiles)
		if err != nil {
			s.log.Close()
			return nil, err
		}
	}

	s.serveGRPC()
	return s, nil
}

// faults returns an error that names every mistake in the options.
func (o *Options) faults() error {
	var errs []error
	if o.Poll < 0 || o.Poll > time.Hour {
		errs = append(errs,
			fmt.Errorf("rls: the time %s between two looks into the folder is not within 0 to 1h", o.Poll))
	}
	if o.MaxDecisions < 0 {
		errs = append(errs, fmt.Errorf("rls: the bound on decisions %d is negative", o.MaxDecisions))
	}
	for _, d := range o.Debit {
		if d == "" {
			errs = append(errs, errors.New("rls: a domain of debits is empty"))
		}
	}
	return errors.Join(errs...)
}

// face is what the engine has to know.
func face(headers limiter.HeaderStyle) engine.Face {
	return engine.Face{
		Name: "envoy", CannotKeep: cannotKeep, SeesNoAnswers: true, NamesCosts: true, Bind: bind,
		Configure: func(c *limiter.Config) { c.Headers = headers },
	}
}

// cannotKeep returns why Envoy cannot be asked to keep a policy.
func cannotKeep(p policy.Policy) string {
	if p.Limit.Leased() {
		return "it limits requests at a time, and Envoy does not tell when a request ends"
	}
	return ""
}

// serveGRPC makes the gRPC server.
func (s *Server) serveGRPC() {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(cmp.Or(s.options.MaxStreams, DefaultMaxStreams)),
		grpc.NumStreamWorkers(workers),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
	if s.options.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.options.TLS)))
	}

	s.grpc, s.health = grpc.NewServer(options...), health.NewServer()
	pb.RegisterRateLimitServiceServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)

	// The health service knows the state before the first call, and learns of it again every
	// second.
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	s.reportReady()
	s.done.Go(func() { s.watchReady(ctx) })
}

// watchReady keeps the health service true.
func (s *Server) watchReady(ctx context.Context) {
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.reportReady()
		}
	}
}

// reportReady reports to the health service whether limits are in force: policies, or those of a
// folder, without which New fails.
func (s *Server) reportReady() {
	now := healthpb.HealthCheckResponse_SERVING
	if s.folder == nil && s.engine.Ready() != nil {
		now = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus("", now)
	s.health.SetServingStatus(pb.RateLimitService_ServiceDesc.ServiceName, now)
}

// Serve answers calls on the listener, which it closes, until Shutdown or Close. It then
// returns nil.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Shutdown says by the health service that the server ends, accepts no more calls, and waits
// until those under way are answered. When ctx ends, it cuts them off, and returns the
// cause.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()

	// GracefulStop has no time-out of its own. Stop makes it return.
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()

	var err error
	select {
	case <-stopped:
	case <-ctx.Done():
		err = context.Cause(ctx)
		s.grpc.Stop()
		<-stopped
	}

	s.Close()
	return err
}

// Close ends the server at once. It may be called again, and never returns an error.
func (s *Server) Close() error {
	s.once.Do(func() {
		// Calls end before what they use: the limiters of the folder, and the log.
		s.health.Shutdown()
		s.grpc.Stop()
		s.end()
		s.done.Wait()
		if s.folder != nil {
			s.folder.Close()
		}
		for _, d := range *s.files.Load() {
			_ = d.limiter.Close()
		}
		s.log.Close()
	})
	return nil
}

// limitsOf returns where the limits of a domain are.
func (s *Server) limitsOf(domain string) (l *limiter.Limiter, d *fileDomain) {
	if d := (*s.files.Load())[domain]; d != nil {
		return d.limiter, d
	}
	return s.apps[domain], nil
}

// logUnknown logs a call for a domain without limits.
func (s *Server) logUnknown(domain string) {
	s.log.Record(slog.LevelWarn, "Envoy names a domain that is neither in the folder nor an application",
		slog.String("domain", fmt.Sprintf("%q", textform.Clip(domain))))
}
