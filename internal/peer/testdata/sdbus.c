/* The other side of the interoperability tests, in sd-bus.
 *
 * sdbus client ADDRESS   calls org.example.Test.Echo on our server, checks the answers
 * sdbus server FD        is the server half on a connected socket, until the peer closes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

static int check(int r, const char *what) {
        if (r < 0) {
                fprintf(stderr, "%s: %s\n", what, strerror(-r));
                exit(1);
        }
        return r;
}

static int echo(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        sd_bus_message *reply = NULL;
        check(sd_bus_message_new_method_return(m, &reply), "new reply");
        check(sd_bus_message_copy(reply, m, 1), "copy");
        check(sd_bus_send(NULL, reply, NULL), "send");
        sd_bus_message_unref(reply);
        check(sd_bus_emit_signal(sd_bus_message_get_bus(m), "/a", "org.example.Test", "Echoed", "s", "x"), "emit");
        return 1;
}

static int refuse(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_error_set(error, "org.example.Error.Refused", "no");
}

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("Echo", "ya{sv}(st)ad", "ya{sv}(st)ad", echo, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Refuse", "", "", refuse, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

static int server(int fd) {
        sd_bus *bus = NULL;
        sd_id128_t id;
        check(sd_id128_randomize(&id), "id");
        check(sd_bus_new(&bus), "new");
        check(sd_bus_set_fd(bus, fd, fd), "set fd");
        check(sd_bus_set_server(bus, 1, id), "set server");
        check(sd_bus_set_anonymous(bus, 1), "set anonymous");
        check(sd_bus_start(bus), "start");
        check(sd_bus_add_object_vtable(bus, NULL, "/a", "org.example.Test", vtable, NULL), "vtable");
        for (;;) {
                int r = sd_bus_process(bus, NULL);
                if (r < 0)
                        return 0; /* the peer has closed */
                if (r == 0)
                        check(sd_bus_wait(bus, UINT64_MAX), "wait");
        }
}

static void ask(sd_bus *bus, unsigned n) {
        sd_bus_message *call = NULL, *reply = NULL;
        sd_bus_error error = SD_BUS_ERROR_NULL;
        uint8_t y;
        const char *key, *value, *s;
        uint64_t t;
        double d;
        check(sd_bus_message_new_method_call(bus, &call, "org.example.Test", "/a", "org.example.Test", "Echo"), "new call");
        check(sd_bus_message_append(call, "ya{sv}(st)ad", n & 0xff, 1, "key", "s", "value", "text", (uint64_t) n, 1, 0.5), "append");
        if (sd_bus_call(bus, call, 0, &error, &reply) < 0) {
                fprintf(stderr, "Echo %u: %s\n", n, error.message);
                exit(1);
        }
        check(sd_bus_message_read(reply, "ya{sv}(st)ad", &y, 1, &key, "s", &value, &s, &t, 1, &d), "read");
        if (y != (n & 0xff) || strcmp(key, "key") || strcmp(value, "value") || strcmp(s, "text") || t != n || d != 0.5) {
                fprintf(stderr, "Echo %u: wrong answer\n", n);
                exit(1);
        }
        sd_bus_message_unref(call);
        sd_bus_message_unref(reply);
}

static int client(const char *address, int hello) {
        sd_bus *bus = NULL;
        sd_bus_error error = SD_BUS_ERROR_NULL;
        int r;
        check(sd_bus_new(&bus), "new");
        check(sd_bus_set_address(bus, address), "set address");
        check(sd_bus_set_bus_client(bus, hello), "set bus client");
        check(sd_bus_negotiate_fds(bus, 1), "negotiate fds");
        check(sd_bus_start(bus), "start");
        for (unsigned n = 0; n < 1000; n++)
                ask(bus, n);
        r = sd_bus_call_method(bus, "org.example.Test", "/a", "org.example.Test", "Refuse", &error, NULL, "");
        if (r >= 0 || strcmp(error.name, "org.example.Error.Refused") || strcmp(error.message, "no")) {
                fprintf(stderr, "Refuse: %d %s %s\n", r, error.name, error.message);
                return 1;
        }
        sd_bus_error_free(&error);
        r = sd_bus_call_method(bus, "org.example.Test", "/a", "org.freedesktop.DBus.Peer", "Ping", &error, NULL, "");
        check(r, "Ping");
        sd_bus_flush_close_unref(bus);
        puts("ok");
        return 0;
}

int main(int argc, char **argv) {
        if (argc == 3 && !strcmp(argv[1], "server"))
                return server(atoi(argv[2]));
        if (argc == 3 && !strcmp(argv[1], "client"))
                return client(argv[2], 1);
        if (argc == 3 && !strcmp(argv[1], "peer"))
                return client(argv[2], 0);
        return 2;
}
