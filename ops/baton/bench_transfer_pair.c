/* The decode end in this process, the prefill end in a child (or a thread), and what passes between
 * them over a pair of sockets. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "ops/baton/bench_transfer.h"

enum { SPEED_RUNS = 5, STRIDE = 10007 };

struct transfer_pair {
    struct transfer_plan plan;
    struct transfer_end *end;
    struct transfer_addresses addresses;
    int fd, other_fd;
    pid_t child;
    pthread_t thread;
    bool has_thread;
};

/* What the prefill end says after each order. */
struct pair_answer {
    struct error error;
    struct transfer_figures figures;
};

static enum status say(int fd, const void *data, size_t bytes, struct error *error)
{
    /* One message of a socket that keeps their borders. */
    if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        return error_set_errno(error, STATUS_CLOSED, "the other end of the bench is gone");
    return STATUS_OK;
}

static enum status hear(int fd, void *data, size_t bytes, int timeout_ms, struct error *error)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count;
    do {
        count = poll(&ready, 1, timeout_ms);
    } while (count < 0 && errno == EINTR);
    if (count == 0)
        return error_set(error, STATUS_TIMEOUT, "the other end of the bench says nothing");
    if (count < 0 || recv(fd, data, bytes, 0) != (ssize_t)bytes)
        return error_set(error, STATUS_CLOSED, "the other end of the bench is gone");
    return STATUS_OK;
}

/* ---- the prefill end ---- */

static void serve(const struct transfer_plan *plan, int fd, struct transfer_addresses *addresses)
{
    struct transfer_end *end = NULL;
    struct pair_answer answer = {0};
    struct transfer_order order;
    transfer_end_create(plan, false, addresses, &end, &answer.error);
    bool goes_on = say(fd, &answer, sizeof answer, &answer.error) == STATUS_OK && end;
    while (goes_on) {
        answer = (struct pair_answer){0};
        if (hear(fd, &order, sizeof order, -1, &answer.error) != STATUS_OK ||
            order.part == TRANSFER_END)
            break;
        transfer_end_run(end, &order, &answer.figures, &answer.error);
        goes_on = say(fd, &answer, sizeof answer, &answer.error) == STATUS_OK &&
                  answer.error.status == STATUS_OK;
    }
    transfer_end_destroy(end);
}

static void *thread_main(void *arg)
{
    struct transfer_pair *pair = arg;
    serve(&pair->plan, pair->other_fd, &pair->addresses);
    return NULL;
}

/* The child has to exist before this process starts UCX, and waits for the addresses. */
static void child_main(struct transfer_pair *pair, pid_t parent)
{
    struct error error;
    close(pair->fd);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    if (hear(pair->other_fd, &pair->addresses, sizeof pair->addresses, TRANSFER_PART_TIMEOUT_MS,
             &error) == STATUS_OK)
        serve(&pair->plan, pair->other_fd, &pair->addresses);
    _exit(0);
}

/* ---- the decode end ---- */

static enum status start_other(struct transfer_pair *pair, struct error *error)
{
    if (!pair->plan.threads)
        return say(pair->fd, &pair->addresses, sizeof pair->addresses, error);
    CHECK(pthread_create(&pair->thread, NULL, thread_main, pair) == 0);
    pair->has_thread = true;
    return STATUS_OK;
}

/* Raw ends dial while they are made, so the listening one has to take the call meanwhile. */
static enum status meet(struct transfer_pair *pair, struct error *error)
{
    struct pair_answer answer;
    TRY(transfer_end_meet(pair->end, error));
    TRY(hear(pair->fd, &answer, sizeof answer, TRANSFER_PART_TIMEOUT_MS, error));
    if (answer.error.status != STATUS_OK)
        *error = answer.error;
    return answer.error.status;
}

enum status transfer_pair_start(const struct transfer_plan *plan, struct transfer_pair **out,
                                struct error *error)
{
    struct transfer_pair *pair = calloc(1, sizeof *pair);
    int fds[2];
    CHECK(pair != NULL);
    pair->plan = *plan;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        free(pair);
        return error_set_errno(error, STATUS_IO, "no pair of sockets");
    }
    pair->fd = fds[0];
    pair->other_fd = fds[1];
    log_init("bench", LOG_LEVEL_ERROR);
    const pid_t parent = getpid();
    fflush(NULL);
    if (!plan->threads && (pair->child = fork()) == 0)
        child_main(pair, parent);
    enum status status = STATUS_OK;
    if (pair->child < 0)
        status = error_set_errno(error, STATUS_IO, "no second process");
    if (pair->child > 0) {
        close(pair->other_fd);
        pair->other_fd = -1;
    }
    if (status == STATUS_OK)
        status = transfer_end_create(&pair->plan, true, &pair->addresses, &pair->end, error);
    if (status == STATUS_OK)
        status = start_other(pair, error);
    if (status == STATUS_OK)
        status = meet(pair, error);
    if (status != STATUS_OK)
        transfer_pair_end(pair);
    else
        *out = pair;
    return status;
}

enum status transfer_pair_run(struct transfer_pair *pair, enum transfer_part part,
                              size_t message_bytes, struct transfer_figures *out,
                              struct error *error)
{
    struct transfer_order order = {.part = part, .message_bytes = message_bytes};
    struct pair_answer answer;
    struct transfer_figures ours;
    TRY(transfer_end_prepare(pair->end, &order, error));
    TRY(say(pair->fd, &order, sizeof order, error));
    const enum status status = transfer_end_run(pair->end, &order, &ours, error);
    TRY(status);
    TRY(hear(pair->fd, &answer, sizeof answer, TRANSFER_PART_TIMEOUT_MS, error));
    if (answer.error.status != STATUS_OK) {
        *error = answer.error;
        return error->status;
    }
    *out = answer.figures;
    out->cpu_seconds += ours.cpu_seconds;
    if (ours.late_ns > out->late_ns)
        out->late_ns = ours.late_ns;
    return STATUS_OK;
}

void transfer_pair_end(struct transfer_pair *pair)
{
    const struct transfer_order end = {.part = TRANSFER_END};
    struct error error;
    if (pair == NULL)
        return;
    /* An end that is gone does not have to be told. */
    if (say(pair->fd, &end, sizeof end, &error) != STATUS_OK && pair->child > 0)
        kill(pair->child, SIGKILL);
    if (pair->has_thread)
        CHECK(pthread_join(pair->thread, NULL) == 0);
    transfer_end_destroy(pair->end);
    close(pair->fd);
    if (pair->other_fd >= 0)
        close(pair->other_fd);
    if (pair->child > 0)
        waitpid(pair->child, NULL, 0);
    free(pair);
}

/* ---- limits of this machine ---- */

struct walk {
    uint8_t *from, *to;
    size_t bytes, piece;
};

/* GB/s, the best of some walks through memory that does not fit the cache. */
static double walk_speed(const struct transfer_plan *plan, size_t piece,
                         void (*visit)(const struct walk *walk, size_t at))
{
    const size_t bytes = (size_t)plan->layers * plan->pages * plan->handoffs * plan->page_bytes;
    struct walk walk = {.bytes = bytes, .piece = piece < bytes ? piece : bytes};
    double best = 0;
    walk.from = malloc(bytes);
    walk.to = malloc(bytes);
    CHECK(walk.from != NULL && walk.to != NULL);
    memset(walk.from, 0x5b, bytes);
    memset(walk.to, 0xdd, bytes);
    for (int run = 0; run < SPEED_RUNS; run++) {
        const uint64_t begun_ns = clock_now_ns(clock_monotonic());
        const size_t pieces = bytes / walk.piece, done = pieces * walk.piece;
        for (size_t i = 0; i < pieces; i++)
            visit(&walk, (plan->scatter ? i * STRIDE % pieces : i) * walk.piece);
        const double ns = (double)(clock_now_ns(clock_monotonic()) - begun_ns);
        best = (double)done / ns > best ? (double)done / ns : best;
    }
    free(walk.from);
    free(walk.to);
    return best;
}

static void visit_checksum(const struct walk *walk, size_t at)
{
    const uint32_t crc = crc32c(0, walk->from + at, walk->piece);
    walk->to[at] = (uint8_t)crc;
}

static void visit_copy(const struct walk *walk, size_t at)
{
    memcpy(walk->to + at, walk->from + at, walk->piece);
}

double transfer_checksum_speed(const struct transfer_plan *plan)
{
    return walk_speed(plan, plan->page_bytes, visit_checksum);
}

double transfer_copy_speed(const struct transfer_plan *plan, size_t bytes)
{
    return walk_speed(plan, bytes, visit_copy);
}
