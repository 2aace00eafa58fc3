// Package rewrite decides what becomes of one record of an action-state topic.
//
// A record comes in, a Decision comes out. Nothing here reads a clock, a file
// or a network, so the same record and the same Rules always give the same
// decision: plan, apply and verify each ask again and must get the same answer.
//
// The package also knows the two marks that a migration leaves on the target:
// the provenance header, which says which source record a target record came
// from, and the reserved key of padding records.
package rewrite
