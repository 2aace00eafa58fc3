// Package statevalue recognises the values of Flink Agents' action-state topics:
// which release wrote one, and whether release 0.4 can read it.
//
// # Layouts
//
// A value is the JSON of an action's state. Every release reads only what it
// knows, and a value does not say which release wrote it, so it is told by what
// it holds:
//
//	layout  told by                                                         read by 0.4
//	0.1     memoryUpdates beside taskEvent and outputEvents                 no: unknown field
//	0.2     events without type: input and output are fields of their own   loads, but input and output are lost
//	        an event of class ...runtime.python.event.PythonEvent           no: the class is gone
//	0.3.0   a memory value as plain JSON                                    no: it wants an envelope
//	0.3.1   a memory value in an envelope: serde, version, payload          yes, by the same major version of Flink
//	0.3     none of these: memory values are all null, or there are none    yes
//	0.4     objectCreation                                                  yes
//	unknown anything else, such as what is no JSON object                   no
//
// Which of 0.3.0, 0.3.1 and 0.4 wrote a value of layout 0.3 cannot be told, and
// need not: all three read it.
//
// # Non-goals
//
// Values are never changed. Nor are they checked further than to tell layouts
// apart: the payload of an envelope, arguments and results of calls, and what
// users put into events are passed over.
package statevalue
