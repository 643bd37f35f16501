"""The other side of the interoperability tests, in libdbus by way of dbus-python."""
import sys

import dbus
import dbus.connection

connection = dbus.connection.Connection(sys.argv[1])
for n in range(200):
    got = connection.call_blocking(
        None, "/a", "org.example.Test", "Echo", "ya{sv}(st)ad",
        (n, {"key": dbus.String("value", variant_level=1)}, ("text", n), [0.5]))
    assert tuple(got) == (n, {"key": "value"}, ("text", n), [0.5]), got
try:
    connection.call_blocking(None, "/a", "org.example.Test", "Refuse", "", ())
    raise AssertionError("was not refused")
except dbus.DBusException as e:
    assert e.get_dbus_name() == "org.example.Error.Refused", e
    assert e.get_dbus_message() == "no", e
connection.call_blocking(None, "/a", "org.freedesktop.DBus.Peer", "Ping", "", ())
connection.close()
print("ok")
