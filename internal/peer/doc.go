// Package peer speaks D-Bus on a net.Conn, to a peer or as a client of a bus.
//
// It holds both halves of SASL, the codec, framing, serials, ordered delivery and bounded
// queues, and knows none of the adapters above it. Sources: the D-Bus specification and
// sd-bus(3).
//
// Rules:
//
//   - The other side is hostile until checked. Sizes, nesting, strings, paths, names,
//     booleans and padding are checked before a message is delivered; a violation closes the
//     connection. On a bus, whose framing can be trusted and where any user may send us
//     anything, the message is left out instead.
//   - What is delivered is valid by construction: a wire.Raw or wire.Value made here is
//     little-endian and may be sent on unopened.
//   - One reader goroutine calls the handler and answers' callbacks in order of arrival. A
//     handler that blocks holds up this connection only, and reading stops meanwhile. A
//     message and its body are valid during the callback; Clone keeps them.
//   - No send blocks. Messages leave in the order of the calls. A connection whose queue is
//     full, or whose peer does not take bytes for WriteTimeout, is closed.
//   - Every call ends: with its answer, at its deadline, or with the connection.
//   - Who the peer is, is known from the connection, never from a SENDER header or a SASL
//     identity. File descriptors are never negotiated.
//   - A panic in a callback closes that connection and no other.
package peer
