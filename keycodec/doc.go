// Package keycodec reads and writes the record keys of Flink Agents' action-state topics, and knows
// on which partition each belongs.
//
// # Goals
//
//   - One key, one meaning. Within a format no two keys parse to the same Key, and no two Keys are
//     written as the same key. Parse and then Append gives the same bytes back; Append and then Parse
//     gives the same Key back. Whatever is not canonical (a leading zero, an upper-case UUID, "%5f")
//     is an error with its own reason, never silently accepted.
//   - A key that cannot be parsed is explained: which field, at which byte, what was expected there,
//     and, where the cause can be recognised, what the key should have been.
//   - Partitions as the runtime computes them, bit for bit.
//   - Fast enough to be run on every record of a topic twice: no allocation to parse or to write.
//
// # Non-goals
//
//   - To guess a format. A keygroup-first key is a legacy key, too; somebody has to say which it is.
//   - To repair. Suggest names what it sees; whether to believe it is for a person to decide.
//   - I/O, clocks, logging. Nothing here depends on anything but its arguments.
//
// # Formats
//
//	name              layout                                                          role
//	legacy            businessKey_sequence_event_action                               source: releases 0.1.0 to 0.3.1
//	keygroup-first    keyGroup_businessKey_sequence_event_action                      source: snapshots, August 2026
//	keygroup-last     keyGroup_sequence_event_action_businessKey                      source: snapshots, September 2026
//	dashed            businessKey-event-action                                        recognised only: before 0.1.0
//	escaped           esc(businessKey)_sequence_event_action                          target, the default
//	length-prefixed   lp1:length:businessKey:sequence:event:action                    target
//	flink-agents-0.4  keyGroup_sequence_event_action_base64(SHA-256(serialized key))  target: release 0.4
//
// The fields, in all formats: the business key is any UTF-8 text, the empty one, separators and line
// breaks included. The sequence number is a decimal from 0 to 2^63-1, the key group one from 0 to
// 32767; neither has leading zeros or a sign. The UUIDs of event and action have 36 characters in
// lower case.
//
// Two pairs overlap, so a topic that mixes them cannot be sorted out by looking at single keys. Each
// keygroup-first key is a legacy key whose business key begins with digits and '_'. Each escaped key is
// a legacy key whose business key has no '_': where it has no '%' either both mean the same. And each
// flink-agents-0.4 key has the shape of a keygroup-last key whose business key is 44 characters of
// base64.
//
// # Reasons
//
// A key is refused for the first of these that applies.
//
//	null-key         the record has no key at all
//	empty-key        the key has no bytes
//	invalid-utf8     some byte of the key is not UTF-8
//	already-encoded  the key is in a target format that no source format can be mistaken for:
//	                 flink-agents-0.4, or length-prefixed ("lp1:", digits, ":"), whole or damaged
//	dashed           the layout from before 0.1.0, which has no sequence number
//	too-few-fields   fewer fields than the format has, but a UUID in either case among them
//	bad-action-uuid  not a canonical UUID where the action should be
//	bad-event-uuid   not a canonical UUID where the event should be
//	bad-sequence     not a canonical decimal where the sequence number should be
//	bad-key-group    not a canonical decimal, or not below the max parallelism
//	bad-escape       (escaped) a raw '_', or a '%' that begins neither %25 nor %5F
//	bad-length       (length-prefixed) not a canonical decimal, or not the length of the business key
//	foreign          anything else: no UUID anywhere in the key; a complete key of another source
//	                 format than asked for; no digest, or no "lp1:", where the format has it; for
//	                 flink-agents-0.4 a business key that no value of the key type prints
//	unknown-action   no format refuses a key for this: it is for keys that are whole, but whose action
//	                 UUID nobody has told the name of, so that release 0.4 would look for another one
//
// Formats that are read from the right (legacy, keygroup-first, escaped) report the rightmost bad
// field, since it is what decides where the fields to its left begin. The others are read, and
// reported, from the left: there bad-key-group and bad-sequence come before the UUIDs. That a key has
// no UUID at all, or belongs to another source format, is seen before any of its fields is looked at.
package keycodec
