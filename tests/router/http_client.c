/* The client half of router_process.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/router/router_process.h"

static void on_readable(void *arg, unsigned events)
{
    struct client *client = arg;
    char chunk[16384];
    const ssize_t bytes = recv(client->fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (bytes > 0) {
        buffer_add(&client->in, chunk, (size_t)bytes);
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
        client->closed = true;
        loop_io_want(client->io, 0);
    }
}

static int dial(const struct router_process *router)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port =
                                            htons((uint16_t)atoi(strchr(router->http, ':') + 1)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0);
    /* A small window, so that a client that does not read is felt soon. */
    const int window = 65536;
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof window), 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

void client_open(struct client *client, struct router_process *router)
{
    *client = (struct client){.router = router};
    client->fd = dial(router);
    client->io = loop_io_create(router->loop, client->fd, LOOP_READ, on_readable, client);
}

void client_send_bytes(struct client *client, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        const ssize_t sent = send(client->fd, at, bytes, MSG_NOSIGNAL);
        if (sent < 0)
            return; /* the router has closed: what it answered shows why */
        at += sent;
        bytes -= (size_t)sent;
    }
}

void client_send(struct client *client, const char *text)
{
    client_send_bytes(client, text, strlen(text));
}

void client_post(struct client *client, const char *path, const char *body)
{
    struct buffer out = {0};
    buffer_printf(&out,
                  "POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
                  "Content-Length: %zu\r\n\r\n",
                  path, strlen(body));
    buffer_add_text(&out, body);
    client_send_bytes(client, out.data, out.size);
    buffer_free(&out);
}

void client_get(struct client *client, const char *path)
{
    char text[512];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
    client_send(client, text);
}

void client_pause(struct client *client)
{
    loop_io_want(client->io, 0);
}

void client_resume(struct client *client)
{
    loop_io_want(client->io, LOOP_READ);
}

void client_close(struct client *client)
{
    if (client->fd < 0)
        return;
    loop_io_destroy(client->io);
    close(client->fd);
    client->fd = -1;
    buffer_free(&client->in);
}

/* Begin of the final response: interim 100s are passed over. NULL before its head is whole. */
static const char *response(const struct client *client)
{
    const char *at = client->in.data;
    while (at) {
        const char *end = strstr(at, "\r\n\r\n");
        if (!end)
            return NULL;
        if (strncmp(at, "HTTP/1.1 100", 12) != 0)
            return at;
        at = end + 4;
    }
    return NULL;
}

int client_status(const struct client *client)
{
    const char *at = response(client);
    return at && strncmp(at, "HTTP/1.", 7) == 0 ? atoi(at + 9) : 0;
}

bool client_header(const struct client *client, const char *name, char *out, size_t capacity)
{
    const char *at = response(client);
    if (!at)
        return false;
    const char *end = strstr(at, "\r\n\r\n");
    const size_t name_bytes = strlen(name);
    for (const char *line = strstr(at, "\r\n"); line && line < end; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, name_bytes) != 0 || line[name_bytes] != ':')
            continue;
        const char *value = line + name_bytes + 1;
        value += strspn(value, " ");
        snprintf(out, capacity, "%.*s", (int)strcspn(value, "\r"), value);
        return true;
    }
    return false;
}

/* Joins chunks; true when the last one is here. */
static bool join_chunks(const char *at, const char *end, struct buffer *out)
{
    while (at < end) {
        char *data;
        const unsigned long bytes = strtoul(at, &data, 16);
        if (data + 2 > end || strncmp(data, "\r\n", 2) != 0)
            return false;
        data += 2;
        if (bytes == 0)
            return data + 2 <= end;
        if (data + bytes + 2 > end) {
            buffer_add(out, data, (size_t)(end - data));
            return false;
        }
        buffer_add(out, data, bytes);
        at = data + bytes + 2;
    }
    return false;
}

static bool read_body(const struct client *client, struct buffer *out)
{
    const char *at = response(client);
    if (!at)
        return false;
    const char *body = strstr(at, "\r\n\r\n") + 4;
    const char *end = client->in.data + client->in.size;
    char value[64];
    if (client_header(client, "Transfer-Encoding", value, sizeof value))
        return join_chunks(body, end, out);
    if (client_header(client, "Content-Length", value, sizeof value)) {
        const size_t bytes = strtoul(value, NULL, 10);
        const size_t here = (size_t)(end - body);
        buffer_add(out, body, here < bytes ? here : bytes);
        return here >= bytes;
    }
    buffer_add(out, body, (size_t)(end - body));
    return client->closed;
}

bool client_complete(const struct client *client)
{
    struct buffer ignored = {0};
    const bool complete = read_body(client, &ignored);
    buffer_free(&ignored);
    return complete;
}

void client_body(const struct client *client, struct buffer *out)
{
    buffer_clear(out);
    buffer_add(out, "", 0);
    read_body(client, out);
}

static int finish(struct client *client, struct buffer *answer)
{
    WAIT_FOR(client->router, client_complete(client) || client->closed);
    const int status = client_status(client);
    if (answer)
        client_body(client, answer);
    client_close(client);
    return status;
}

int client_ask(struct router_process *router, const char *path, const char *body,
               struct buffer *answer)
{
    struct client client;
    client_open(&client, router);
    client_post(&client, path, body);
    return finish(&client, answer);
}

int client_fetch(struct router_process *router, const char *path, struct buffer *answer)
{
    struct client client;
    client_open(&client, router);
    client_get(&client, path);
    return finish(&client, answer);
}

double client_metric(struct router_process *router, const char *series)
{
    struct buffer text = {0};
    cr_assert_eq(client_fetch(router, "/metrics", &text), 200);
    char wanted[256];
    snprintf(wanted, sizeof wanted, "\n%s ", series);
    const char *line = strstr(text.data, wanted);
    cr_assert(line, "no series %s", series);
    const double value = strtod(line + strlen(wanted), NULL);
    buffer_free(&text);
    return value;
}

uint32_t text_count(const char *text, const char *part)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}
