// Package trigger is JetStream's side of a function: it pulls from durable
// consumers, makes batches, keeps the leases of what it holds, settles, and
// stores dead letters. Schedules are messages of a stream too; request subjects
// are micro endpoints.
package trigger
