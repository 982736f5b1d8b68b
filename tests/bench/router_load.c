/* What a token and a request cost the router: a real baton-router on one core; clients, and workers
 * that compute nothing, on another. By hand, on a machine with nothing else to do. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "tests/bench/load_worker.h"

enum { NOTIFY_FD = 3, ARRIVALS_BYTES = 1 << 18, ANSWER_TOKENS = 1000, PROMPT_TOKENS = 200 };

static const double STREAMED_TOKENS_PER_S = 80e3, REQUESTS_PER_S = 8e3, IDLE_BYTES = 400e6;

struct options {
    const char *model, *router;
    uint32_t streams, seconds, idle, router_cpu, own_cpu;
};

#define AT(field) offsetof(struct options, field)
/* clang-format off */
static const struct config_row rows[] = {
    {"model", CONFIG_TEXT, AT(model), NULL, "PATH", "model whose tokenizer is used", 0, 0},
    {"router", CONFIG_TEXT, AT(router), NULL, "PATH", "baton-router to run", 0, 0},
    {"streams", CONFIG_U32, AT(streams), "128", "N", "clients at once", 1, 4096},
    {"seconds", CONFIG_U32, AT(seconds), "4", "S", "length of each measurement", 1, 60},
    {"idle", CONFIG_U32, AT(idle), "10000", "N", "idle streams; 0: none", 0, 16000},
    {"router-cpu", CONFIG_U32, AT(router_cpu), "0", "CPU", "the router's", 0, 1023},
    {"own-cpu", CONFIG_U32, AT(own_cpu), "1", "CPU", "clients' and workers'", 0, 1023},
};
/* clang-format on */
static const struct config_command command = {
    .program = "router_load",
    .summary = "Measures what a streamed token and a request cost the router.",
    .examples = "  router_load --model model.gguf --router build/release/bin/baton-router\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

struct bench;

/* Sends the same request again and again; takes the answer apart only as far as counting needs. */
struct caller {
    struct bench *bench;
    int fd;
    struct loop_io *io;
    char tail[8];      /* of what came last */
    uint32_t events;   /* of this answer, those with a token */
    size_t body_bytes; /* of an answer with a length, still to come; 0: its head is to come */
};

struct bench {
    struct options options;
    struct loop *loop;
    struct text *text;
    pid_t pid;
    char http[64], control[64], state[64];
    struct load_worker prefill, decode;
    struct caller *callers;
    uint32_t caller_count;
    struct buffer request;
    bool stream;
    uint64_t answers, tokens_sent, tokens_got;
};

static void fail(const char *what)
{
    fprintf(stderr, "router_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the router ---- */

static void pin(uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fail("sched_setaffinity");
}

static void start_router(struct bench *bench)
{
    int pipe_fds[2];
    snprintf(bench->state, sizeof bench->state, "/tmp/router_load.XXXXXX");
    if (!mkdtemp(bench->state) || pipe(pipe_fds) != 0)
        fail("a folder and a pipe for the router");
    bench->pid = fork();
    if (bench->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(bench->options.router_cpu);
        dup2(pipe_fds[1], NOTIFY_FD);
        execl(bench->options.router, "baton-router", "--model", bench->options.model, "--http",
              "127.0.0.1:0", "--control", "127.0.0.1:0", "--state-dir", bench->state, "--notify-fd",
              "3", "--max-requests", "16384", "--idle-timeout-ms", "600s", NULL);
        fail("the router does not start");
    }
    close(pipe_fds[1]);
    FILE *notices = fdopen(pipe_fds[0], "r");
    CHECK(notices != NULL);
    char line[256];
    while (fgets(line, sizeof line, notices) && strcmp(line, "READY=1\n") != 0) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "HTTP=", 5) == 0)
            snprintf(bench->http, sizeof bench->http, "%.60s", line + 5);
        if (strncmp(line, "CONTROL=", 8) == 0)
            snprintf(bench->control, sizeof bench->control, "%.60s", line + 8);
    }
    fclose(notices);
    CHECK(bench->control[0] != '\0');
}

static void stop_router(struct bench *bench)
{
    char line[128];
    kill(bench->pid, SIGKILL);
    waitpid(bench->pid, NULL, 0);
    snprintf(line, sizeof line, "rm -rf '%s'", bench->state);
    if (system(line) != 0)
        fail("the router's folder stays");
}

/* User and system time of all its threads. */
static double cpu_seconds(pid_t pid)
{
    char path[64], line[1024];
    unsigned long user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        fail(path);
    fclose(file);
    CHECK(sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                 &user, &kernel) == 2);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static double resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long size = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%lu %lu", &size, &resident) != 2)
        fail(path);
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

/* ---- clients ---- */

static void ask(struct caller *caller)
{
    const struct buffer *request = &caller->bench->request;
    caller->events = 0;
    caller->body_bytes = 0;
    memset(caller->tail, 0, sizeof caller->tail);
    if (send(caller->fd, request->data, request->size, MSG_NOSIGNAL) != (ssize_t)request->size)
        fail("a request does not fit the socket's buffer");
}

/* Ends of events are two newlines; the first ones of an answer have a token each. */
static bool read_stream(struct caller *caller, const char *data, size_t bytes)
{
    static const char end[] = "\r\n0\r\n\r\n";
    struct bench *bench = caller->bench;
    char before = caller->tail[sizeof caller->tail - 1];
    for (size_t i = 0; i < bytes; before = data[i], i++) {
        if (data[i] == '\n' && before == '\n' && caller->events < ANSWER_TOKENS) {
            caller->events++;
            bench->tokens_got++;
        }
    }
    const size_t kept = bytes < sizeof caller->tail ? bytes : sizeof caller->tail;
    memmove(caller->tail, caller->tail + kept, sizeof caller->tail - kept);
    memcpy(caller->tail + sizeof caller->tail - kept, data + bytes - kept, kept);
    return memcmp(caller->tail + 1, end, sizeof end - 1) == 0;
}

/* An answer is small and comes in one piece or its body behind its head. */
static bool read_whole(struct caller *caller, const char *data, size_t bytes)
{
    if (caller->body_bytes == 0) {
        static const char length[] = "\r\nContent-Length: ";
        if (bytes < 16 || memcmp(data, "HTTP/1.1 200", 12) != 0)
            fail("an answer that is no 200");
        const char *at = memmem(data, bytes, length, sizeof length - 1);
        const char *body = memmem(data, bytes, "\r\n\r\n", 4);
        CHECK(at && body);
        caller->body_bytes = strtoul(at + sizeof length - 1, NULL, 10);
        bytes -= (size_t)(body + 4 - data);
    }
    CHECK(bytes <= caller->body_bytes);
    caller->body_bytes -= bytes;
    return caller->body_bytes == 0;
}

static void on_readable(void *arg, unsigned events)
{
    static char arrivals[ARRIVALS_BYTES + 1];
    struct caller *caller = arg;
    const ssize_t bytes = recv(caller->fd, arrivals, ARRIVALS_BYTES, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (bytes <= 0)
        fail("the router closed a connection");
    const bool ended = caller->bench->stream ? read_stream(caller, arrivals, (size_t)bytes)
                                             : read_whole(caller, arrivals, (size_t)bytes);
    if (!ended)
        return;
    caller->bench->answers++;
    ask(caller);
}

static void open_callers(struct bench *bench, uint32_t count)
{
    const char *port = strrchr(bench->http, ':') + 1;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bench->callers = calloc(count, sizeof *bench->callers);
    CHECK(bench->callers != NULL);
    bench->caller_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct caller *caller = &bench->callers[i];
        const int on = 1;
        *caller = (struct caller){.bench = bench, .fd = socket(AF_INET, SOCK_STREAM, 0)};
        if (caller->fd < 0 ||
            connect(caller->fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
            setsockopt(caller->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
            fail("a client does not get through");
        caller->io = loop_io_create(bench->loop, caller->fd, LOOP_READ, on_readable, caller);
        ask(caller);
        if (i % 64 == 63)
            loop_run_once(bench->loop, 0);
    }
}

static void close_callers(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->caller_count; i++) {
        loop_io_destroy(bench->callers[i].io);
        close(bench->callers[i].fd);
    }
    free(bench->callers);
    bench->caller_count = 0;
    /* Their cancels have to have come before others begin. */
    while (bench->decode.running_count > 0)
        loop_run_once(bench->loop, 10);
}

/* stream: prompt of one token. Otherwise one token is asked for: a prompt of ids or of text. */
static void make_request(struct bench *bench, bool stream, bool ids)
{
    struct buffer body = {0};
    if (stream) {
        buffer_printf(&body,
                      "{\"prompt\":[1],\"stream\":true,\"ignore_eos\":true,"
                      "\"max_tokens\":%d}",
                      ANSWER_TOKENS);
    } else {
        buffer_printf(&body, "{\"max_tokens\":1,\"prompt\":%c", ids ? '[' : '"');
        for (int i = 0; i < PROMPT_TOKENS; i++) {
            if (ids)
                buffer_printf(&body, "%s%d", i > 0 ? "," : "", 100 + i);
            else
                buffer_add_text(&body, " word");
        }
        buffer_add_text(&body, ids ? "]}" : "\"}");
    }
    bench->stream = stream;
    buffer_clear(&bench->request);
    buffer_printf(&bench->request,
                  "POST /v1/completions HTTP/1.1\r\nHost: load\r\nContent-Type: "
                  "application/json\r\nContent-Length: %zu\r\n\r\n",
                  body.size);
    buffer_add(&bench->request, body.data, body.size);
    buffer_free(&body);
}

/* ---- measurements ---- */

static double now_s(void)
{
    return (double)clock_now_ns(clock_monotonic()) / NS_PER_S;
}

/* Steps follow the clients: two of them may be on their way. */
static void run_for(struct bench *bench, double seconds)
{
    const double end_s = now_s() + seconds;
    while (now_s() < end_s) {
        loop_run_once(bench->loop, 1);
        while (bench->stream && bench->decode.running_count > 0 &&
               bench->tokens_sent < bench->tokens_got + 2ULL * bench->caller_count)
            bench->tokens_sent += load_worker_step(&bench->decode);
    }
}

static void measure(struct bench *bench, const char *what, double wanted_per_s)
{
    open_callers(bench, bench->options.streams);
    bench->tokens_sent = bench->tokens_got = 0;
    run_for(bench, 1); /* until all have begun */
    const double cpu_s = cpu_seconds(bench->pid), begin_s = now_s();
    const uint64_t tokens = bench->tokens_got, answers = bench->answers;
    run_for(bench, bench->options.seconds);
    const double took_s = now_s() - begin_s, used_s = cpu_seconds(bench->pid) - cpu_s;
    const double count =
        (double)(bench->stream ? bench->tokens_got - tokens : bench->answers - answers);
    printf("%-34s %8.0f /s  %6.2f us CPU each  router %3.0f %% busy", what, count / took_s,
           used_s / count * 1e6, 100 * used_s / took_s);
    if (wanted_per_s > 0)
        printf("  %4.0f %% of %.0f /s", 100 * count / took_s / wanted_per_s, wanted_per_s);
    printf("\n");
    close_callers(bench);
}

static void measure_idle(struct bench *bench)
{
    const double before = resident_bytes(bench->pid);
    bench->tokens_got = 0;
    open_callers(bench, bench->options.idle);
    while (bench->decode.running_count < bench->options.idle)
        loop_run_once(bench->loop, 10);
    load_worker_step(&bench->decode);
    while (bench->tokens_got < 2ULL * bench->options.idle) /* with that of the prefill node */
        loop_run_once(bench->loop, 10);
    const double bytes = resident_bytes(bench->pid);
    printf("%-34s %8.0f MB, %.1f kB each beside %.0f MB  %4.0f %% of %.0f MB\n", "idle streams",
           bytes / 1e6, (bytes - before) / 1e3 / bench->options.idle, before / 1e6,
           100 * bytes / IDLE_BYTES, IDLE_BYTES / 1e6);
    close_callers(bench);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct error error;
    int first_operand;
    const int parsed = config_begin(&command, argc, argv, &bench.options, &first_operand);
    if (parsed != CONFIG_GO_ON)
        return parsed;
    if (!bench.options.model || !bench.options.router) {
        fprintf(stderr, "router_load: --model PATH and --router PATH are needed\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    const struct rlimit files = {20000, 20000};
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        fprintf(stderr, "router_load: the limit on open files stays: %s\n", strerror(errno));
    setvbuf(stdout, NULL, _IOLBF, 0);
    pin(bench.options.own_cpu);
    if (text_open(bench.options.model, &bench.text, &error) != STATUS_OK) {
        fprintf(stderr, "router_load: %s\n", error.text);
        return 1;
    }
    bench.loop = loop_create();
    start_router(&bench);
    load_worker_start(&bench.prefill, bench.loop, WORKER_PREFILL, bench.text, bench.control);
    load_worker_start(&bench.decode, bench.loop, WORKER_DECODE, bench.text, bench.control);
    make_request(&bench, true, true);
    measure(&bench, "streamed tokens", STREAMED_TOKENS_PER_S);
    make_request(&bench, false, true);
    measure(&bench, "requests, 200 ids, 1 token", REQUESTS_PER_S);
    make_request(&bench, false, false);
    measure(&bench, "requests, 200 words, 1 token", 0);
    make_request(&bench, true, true);
    if (bench.options.idle > 0)
        measure_idle(&bench);
    load_worker_stop(&bench.prefill);
    load_worker_stop(&bench.decode);
    stop_router(&bench);
    loop_destroy(bench.loop);
    text_close(bench.text);
    buffer_free(&bench.request);
    return 0;
}
