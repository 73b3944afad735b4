package trigger

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/manifests"
)

// The stream of schedules. A definition lies on one subject, its firings on
// another, each subject keeps one message: so a definition replaces the one
// before, and firings that nobody took become one.
const (
	ScheduleStream   = "PELTON_SCHEDULES"
	scheduleSubjects = "pelton.schedule.>"
	definitionPrefix = "pelton.schedule.def."
	firingPrefix     = "pelton.schedule.fire."
	scheduleLevel    = 4 // of the server's API: 2.14
)

// ScheduleTrigger returns the stream trigger that takes a schedule's firings.
func ScheduleTrigger(t manifests.Trigger) manifests.Trigger {
	t.Stream = ScheduleStream
	t.FilterSubjects = []string{firingPrefix + t.DurableName}
	return t
}

// ScheduleDefinition is the subject that a schedule's definition is stored on.
func ScheduleDefinition(durable string) string { return definitionPrefix + durable }

// PrepareSchedule returns what makes a schedule's stream and definition. The
// server fires it; all hosts of the durable share the firings.
func PrepareSchedule(js jetstream.JetStream, t manifests.Trigger) func(context.Context) error {
	return func(ctx context.Context) error {
		account, err := js.AccountInfo(ctx)
		if err != nil {
			return fmt.Errorf("ask the server for its level: %w", err)
		}
		if account.API.Level < scheduleLevel {
			return permanent{fmt.Errorf("schedules need nats-server 2.14 (API level %d), this one has level %d", scheduleLevel, account.API.Level)}
		}
		stream, err := scheduleStream(ctx, js)
		if err != nil {
			return err
		}
		return define(ctx, js, stream, t)
	}
}

func scheduleStream(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, ScheduleStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: ScheduleStream, Subjects: []string{scheduleSubjects},
			Description:       "Schedules of Pelton functions and their firings.",
			MaxMsgsPerSubject: 1, AllowMsgSchedules: true, AllowMsgTTL: true, AllowDirect: true,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another host was first
			s, err = js.Stream(ctx, ScheduleStream)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", ScheduleStream, err)
	}
	return s, nil
}

// define stores the definition, unless it is there already: storing it anew
// would begin the interval anew.
func define(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, t manifests.Trigger) error {
	subject := definitionPrefix + t.DurableName
	have, err := stream.GetLastMsgForSubject(ctx, subject)
	if err == nil && have.Header.Get("Nats-Schedule") == t.Cron() {
		return nil
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("read schedule %s: %w", subject, err)
	}
	msg := &nats.Msg{Subject: subject, Header: nats.Header{
		"Nats-Schedule":        {t.Cron()},
		"Nats-Schedule-Target": {firingPrefix + t.DurableName},
	}}
	if _, err := js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("define schedule %q: %w", t.Schedule, err)
	}
	return nil
}
