/* A real baton-router as a child, clients that speak HTTP byte by byte, and workers made up by the
 * test, all on one loop of the test's own. Waiting has an end; nothing sleeps. */
#ifndef BATON_TESTS_ROUTER_ROUTER_PROCESS_H
#define BATON_TESTS_ROUTER_ROUTER_PROCESS_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"

struct router_process {
    struct loop *loop;
    pid_t pid;
    char http[64], control[64], folder[256];
};

/* Starts it on tiny_model_path() with free ports, patient with its workers, and waits for READY.
 * extra: more arguments, ended by NULL, before which the same ones give way; may be NULL. */
void router_process_start(struct router_process *router, const char *const *extra);
/* SIGTERM, waits; the exit code, or minus the signal that ended it. */
int router_process_stop(struct router_process *router);
int router_process_wait(struct router_process *router);
/* Runs one to its end with these arguments; its exit code, what it wrote to *output. */
int router_process_run(const char *const *arguments, struct buffer *output);

#define WAIT_FOR(router, condition)                                                                \
    do {                                                                                           \
        const uint64_t begun_ns_ = loop_now_ns((router)->loop);                                    \
        while (!(condition)) {                                                                     \
            loop_run_once((router)->loop, 5);                                                      \
            cr_assert(loop_now_ns((router)->loop) - begun_ns_ < 100 * (uint64_t)NS_PER_S,          \
                      "never came true: " #condition);                                             \
        }                                                                                          \
    } while (0)

/* ---- a client ---- */

struct client {
    struct router_process *router;
    int fd;
    struct loop_io *io;
    struct buffer in; /* all bytes received */
    bool closed;      /* by the router */
    bool paused;      /* takes no bytes */
};

void client_open(struct client *client, struct router_process *router);
void client_send(struct client *client, const char *text);
void client_send_bytes(struct client *client, const void *data, size_t bytes);
/* POST of a JSON body. */
void client_post(struct client *client, const char *path, const char *body);
void client_get(struct client *client, const char *path);
void client_pause(struct client *client);
void client_resume(struct client *client);
void client_close(struct client *client); /* frees; fine when closed already */

/* Status of the first response, 0 before its head is here. */
int client_status(const struct client *client);
/* The head has come, and the body as long as it says (or to its last chunk). */
bool client_complete(const struct client *client);
/* The body so far, chunks joined. Caller frees. */
void client_body(const struct client *client, struct buffer *out);
/* "value" of a header of the first response, in out; false when absent. */
bool client_header(const struct client *client, const char *name, char *out, size_t capacity);
/* Sends and waits for the whole answer; returns the status. */
int client_ask(struct router_process *router, const char *path, const char *body,
               struct buffer *answer);
int client_fetch(struct router_process *router, const char *path, struct buffer *answer);
/* Value of a metric line, "name{labels}". */
double client_metric(struct router_process *router, const char *series);
/* Number of times a text stands in another. */
uint32_t text_count(const char *text, const char *part);

#endif
