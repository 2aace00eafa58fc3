// Package migrate carries out a migration: plan, apply and verify, and the
// Kafka reading and writing that they share.
//
// The way of one record, from the source topic to the target topic:
//
//	reader   fetches one source partition up to its captured end   reader.go
//	demand   asks rewrite.Decide what becomes of each record       demand.go
//	plan     counts the decisions and seals them in plan.json      plan.go
//	apply    appends the records that belong on the target         apply.go
//	writer   one ordered, idempotent sequence per partition        writer.go
//	compare  reads both topics again and compares them             compare.go
//	rehearse replays both topics as the job's recovery will        rehearse.go
//
// Two interfaces keep Kafka out of everything else: Source hands out
// rewrite.Record values of a fixed range, Sink takes them in order. The client
// library appears only in the files named kafka_*.go, reader.go and writer.go.
//
// # Invariants
//
// The source is only ever read. Nothing is written to a target partition after
// a write to it failed. For each pair of source and target partition, source
// offsets rise along the target partition; so the highest provenance offset of
// a pair says all that is already there, and no local state has to be trusted.
package migrate
