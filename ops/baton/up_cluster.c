#include "ops/baton/up_cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/loop.h"
#include "ops/baton/up_child.h"
#include "ops/baton/up_report.h"

enum {
    BACK_OFF_FIRST_MS = 200,
    BACK_OFF_MAX_MS = 10000,
    BACK_OFF_FORGET_S = 30, /* ready for so long: the next death counts as the first */
    HOW_BYTES = 64,
};

/* Where a child is; the rows below say what an end or a passed deadline means there. */
enum member_state {
    MEMBER_IDLE,     /* no process yet: waits for the router's control address */
    MEMBER_STARTING, /* a process that is not ready; the timer is its deadline */
    MEMBER_READY,
    MEMBER_PAUSING,  /* no process; the timer starts the next one */
    MEMBER_STOPPING, /* SIGTERM is sent; the cluster's own timer is the deadline */
    MEMBER_GONE,
};

struct cluster;
struct member {
    struct child child; /* first: on_news gets the child and wants the member */
    struct cluster *cluster;
    enum member_state state;
    struct loop_timer *timer;
    uint32_t back_off_ms;
    uint32_t death_count;
    uint64_t ready_ns;
    bool killed;          /* by this program: what its end looks like says nothing */
    uint32_t fault_words; /* of its arguments, the last ones: they are for one life */
};

enum cluster_phase { CLUSTER_STARTING, CLUSTER_RUNNING, CLUSTER_STOPPING };

struct cluster {
    const struct cluster_options *options;
    struct loop *loop;
    enum cluster_phase phase;
    struct member members[1 + CLUSTER_WORKERS_MAX]; /* [0] is the router */
    uint32_t member_count;
    struct loop_timer *timer; /* the start, later the stop deadline */
    struct loop_signal *signals[3];
    struct up_report *report;
    char control[CHILD_ADDRESS_BYTES]; /* the router's, kept for workers started again */
    enum status result;
    struct error *error;
};

static void on_death(struct member *member, const char *how, bool clean);
static void on_wanted_death(struct member *member, const char *how, bool clean);
static void on_late(struct member *member);
static void on_pause_over(struct member *member);

static const struct member_row {
    const char *name;
    void (*on_death)(struct member *member, const char *how, bool clean);
    void (*on_timer)(struct member *member);
} member_rows[] = {
    [MEMBER_IDLE] = {"idle", NULL, NULL},
    [MEMBER_STARTING] = {"starting", on_death, on_late},
    [MEMBER_READY] = {"ready", on_death, NULL},
    [MEMBER_PAUSING] = {"pausing", NULL, on_pause_over},
    [MEMBER_STOPPING] = {"stopping", on_wanted_death, NULL},
    [MEMBER_GONE] = {"gone", NULL, NULL},
};

static void member_set(struct member *member, enum member_state state)
{
    member->state = state;
    loop_timer_stop(member->timer);
}

static const struct member *cluster_router(const struct cluster *cluster)
{
    return &cluster->members[0];
}

static bool member_is_router(const struct member *member)
{
    return member == cluster_router(member->cluster);
}

/* "decode-0 was killed by signal 9 (Killed)", with its own words for it if it had any. */
static void death_tell(const struct member *member, const char *how, struct error *error)
{
    const struct child *child = &member->child;
    char last[160];
    child_last_log_line(child, last, sizeof last);
    if (child->failure[0] != '\0')
        error_set(error, STATUS_CLOSED, "%s %s: %s", child->name, how, child->failure);
    else if (last[0] != '\0')
        error_set(error, STATUS_CLOSED, "%s %s; the last line of its log is: %s", child->name, how,
                  last);
    else
        error_set(error, STATUS_CLOSED, "%s %s and has written nothing to %s", child->name, how,
                  child->log_path);
}

/* ---- stopping ---- */

static void stop_if_empty(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->member_count; i++)
        if (cluster->members[i].child.pid > 0)
            return;
    loop_stop(cluster->loop);
}

/* Workers and router at once: the router ends its streams with an error event by itself. */
static void cluster_stop(struct cluster *cluster)
{
    if (cluster->phase == CLUSTER_STOPPING)
        return;
    cluster->phase = CLUSTER_STOPPING;
    if (cluster->options->ready_file)
        unlink(cluster->options->ready_file);
    for (uint32_t i = 0; i < cluster->member_count; i++) {
        struct member *member = &cluster->members[i];
        member_set(member, member->child.pid > 0 ? MEMBER_STOPPING : MEMBER_GONE);
        child_signal(&member->child, SIGTERM);
    }
    loop_timer_start(cluster->timer, cluster->options->stop_timeout_ms, 0);
    stop_if_empty(cluster);
}

static void cluster_kill(struct cluster *cluster, const char *why)
{
    for (uint32_t i = 0; i < cluster->member_count; i++) {
        struct member *member = &cluster->members[i];
        if (member->child.pid == 0)
            continue;
        report_line(cluster->report, "%s (pid %d) is killed: %s", member->child.name,
                    (int)member->child.pid, why);
        member->killed = true;
        child_signal(&member->child, SIGKILL);
    }
}

/* The first failure is the one that is told at the end. */
static void fail_once(struct cluster *cluster, const struct error *error)
{
    if (cluster->result != STATUS_OK)
        return;
    cluster->result = error->status;
    *cluster->error = *error;
}

static void cluster_fail(struct cluster *cluster, const struct error *error)
{
    fail_once(cluster, error);
    cluster_stop(cluster);
}

/* A daemon that is told to stop ends with 0; anything else is a fault that nobody would see in the
 * log of a cluster that has stopped. */
static void on_wanted_death(struct member *member, const char *how, bool clean)
{
    struct error death;
    if (!clean && !member->killed) {
        death_tell(member, how, &death);
        fail_once(member->cluster, &death);
    }
    member_set(member, MEMBER_GONE);
    stop_if_empty(member->cluster);
}

/* ---- starting ---- */

/* The next process of that name is to be a sound one. */
static void faults_add(struct member *member)
{
    const struct cluster_options *options = member->cluster->options;
    struct child *child = &member->child;
    child_drop_words(child, member->fault_words);
    member->fault_words = 0;
    if (member->death_count > 0)
        return;
    for (uint32_t i = 0; i < options->fault_count; i++) {
        const size_t name_bytes = strcspn(options->faults[i], "=");
        if (strlen(child->name) != name_bytes ||
            strncmp(options->faults[i], child->name, name_bytes) != 0)
            continue;
        child_add_option(child, "--enable-fault-injection", NULL);
        child_add_option(child, "--fault", options->faults[i] + name_bytes + 1);
        member->fault_words += 3;
    }
}

static enum status member_start(struct member *member, struct error *error)
{
    faults_add(member);
    TRY(child_start(&member->child, error));
    member_set(member, MEMBER_STARTING);
    loop_timer_start(member->timer, member->cluster->options->start_timeout_ms, 0);
    return STATUS_OK;
}

static void workers_start(struct cluster *cluster)
{
    snprintf(cluster->control, sizeof cluster->control, "%s",
             cluster_router(cluster)->child.control);
    for (uint32_t i = 1; i < cluster->member_count; i++) {
        struct error error;
        child_add_option(&cluster->members[i].child, "--router", cluster->control);
        if (member_start(&cluster->members[i], &error) != STATUS_OK) {
            cluster_fail(cluster, &error);
            return;
        }
    }
}

/* What a person or a test reads; written anew whenever a process was replaced. */
static void ready_file_update(struct cluster *cluster)
{
    const struct child *children[1 + CLUSTER_WORKERS_MAX];
    for (uint32_t i = 0; i < cluster->member_count; i++)
        children[i] = &cluster->members[i].child;
    struct error error;
    if (report_ready_file(cluster->options, children, cluster->member_count, &error) != STATUS_OK)
        cluster_fail(cluster, &error);
}

static void announce_if_ready(struct cluster *cluster)
{
    const struct child *children[1 + CLUSTER_WORKERS_MAX];
    for (uint32_t i = 0; i < cluster->member_count; i++) {
        if (cluster->members[i].state != MEMBER_READY)
            return;
        children[i] = &cluster->members[i].child;
    }
    cluster->phase = CLUSTER_RUNNING;
    loop_timer_stop(cluster->timer);
    report_ready(cluster->report, cluster->options, children, cluster->member_count);
    ready_file_update(cluster);
}

static void on_ready(struct member *member)
{
    struct cluster *cluster = member->cluster;
    member_set(member, MEMBER_READY);
    member->ready_ns = loop_now_ns(cluster->loop);
    if (cluster->phase == CLUSTER_RUNNING) {
        report_line(cluster->report, "%s is ready again (pid %d)", member->child.name,
                    (int)member->child.pid);
        ready_file_update(cluster);
    } else {
        announce_if_ready(cluster);
    }
}

static void on_news(void *arg, struct child *child)
{
    struct member *member = arg;
    struct cluster *cluster = member->cluster;
    if (cluster->phase == CLUSTER_STOPPING)
        return;
    if (cluster->phase == CLUSTER_STARTING)
        report_progress(cluster->report, child);
    if (member_is_router(member) && child->control[0] != '\0' && cluster->control[0] == '\0')
        workers_start(cluster);
    if (child->ready && member->state == MEMBER_STARTING)
        on_ready(member);
}

/* ---- deaths and deadlines ---- */

static void member_pause(struct member *member, const struct error *death)
{
    struct cluster *cluster = member->cluster;
    const uint64_t forget_ns = (uint64_t)BACK_OFF_FORGET_S * NS_PER_S;
    const bool lived_long =
        member->state == MEMBER_READY && loop_now_ns(cluster->loop) - member->ready_ns > forget_ns;
    if (member->back_off_ms == 0 || lived_long)
        member->back_off_ms = BACK_OFF_FIRST_MS;
    else if (member->back_off_ms < BACK_OFF_MAX_MS / 2)
        member->back_off_ms *= 2;
    else
        member->back_off_ms = BACK_OFF_MAX_MS;
    member->death_count++;
    report_line(cluster->report, "%s", death->text);
    report_line(cluster->report, "%s is started again in %u ms (death %u)", member->child.name,
                member->back_off_ms, member->death_count);
    member_set(member, MEMBER_PAUSING);
    loop_timer_start(member->timer, member->back_off_ms, 0);
}

/* A cluster without its router is none; and whatever keeps a child from its first start will keep
 * the next one from it too. */
static void on_death(struct member *member, const char *how, bool clean)
{
    (void)clean; /* nobody has asked it to end */
    struct error death;
    death_tell(member, how, &death);
    if (member_is_router(member) || member->cluster->phase == CLUSTER_STARTING) {
        cluster_fail(member->cluster, &death);
        return;
    }
    member_pause(member, &death);
    ready_file_update(member->cluster);
}

static void on_late(struct member *member)
{
    struct cluster *cluster = member->cluster;
    if (cluster->phase == CLUSTER_STARTING)
        return; /* the cluster's own deadline, started earlier, names all that are late */
    report_line(cluster->report, "%s was not ready within %u ms (%s), it is killed",
                member->child.name, cluster->options->start_timeout_ms,
                member->child.status[0] != '\0' ? member->child.status : "no word from it");
    child_signal(&member->child, SIGKILL);
}

static void on_pause_over(struct member *member)
{
    struct error error;
    if (member_start(member, &error) != STATUS_OK)
        member_pause(member, &error);
}

static void on_member_timer(void *arg)
{
    struct member *member = arg;
    CHECK(member_rows[member->state].on_timer != NULL);
    member_rows[member->state].on_timer(member);
}

static void on_child_signal(void *arg)
{
    struct cluster *cluster = arg;
    for (uint32_t i = 0; i < cluster->member_count; i++) {
        struct member *member = &cluster->members[i];
        char how[HOW_BYTES];
        bool clean;
        if (!child_reap(&member->child, how, sizeof how, &clean))
            continue;
        CHECK(member_rows[member->state].on_death != NULL);
        member_rows[member->state].on_death(member, how, clean);
    }
}

static void on_stop_signal(void *arg)
{
    struct cluster *cluster = arg;
    if (cluster->phase == CLUSTER_STOPPING) {
        cluster_kill(cluster, "told to stop a second time");
        return;
    }
    report_line(cluster->report, "stopping");
    cluster_stop(cluster);
}

/* "decode-0 (loading model 40 %, see FILE), …" for all that are late. */
static void start_deadline_passed(struct cluster *cluster)
{
    struct buffer late = {0};
    for (uint32_t i = 0; i < cluster->member_count; i++) {
        const struct child *child = &cluster->members[i].child;
        if (cluster->members[i].state != MEMBER_READY)
            buffer_printf(&late, "%s%s (%s, log %s)", late.size ? ", " : "", child->name,
                          child->status[0] != '\0' ? child->status
                                                   : member_rows[cluster->members[i].state].name,
                          child->log_path);
    }
    struct error error;
    error_set(&error, STATUS_TIMEOUT, "not ready within %u ms: %s",
              cluster->options->start_timeout_ms, late.data);
    buffer_free(&late);
    cluster_fail(cluster, &error);
}

static void on_deadline(void *arg)
{
    struct cluster *cluster = arg;
    if (cluster->phase == CLUSTER_STARTING)
        start_deadline_passed(cluster);
    else
        cluster_kill(cluster, "it did not stop in time");
}

/* ---- the members ---- */

static enum status member_add(struct cluster *cluster, const char *name, const char *binary,
                              struct error *error)
{
    CHECK(cluster->member_count <= CLUSTER_WORKERS_MAX);
    struct member *member = &cluster->members[cluster->member_count];
    char program[PATH_MAX];
    if (snprintf(program, sizeof program, "%s/%s", cluster->options->bin_folder, binary) >=
        PATH_MAX)
        return error_set(error, STATUS_LIMIT, "the path of %s is longer than %d bytes", binary,
                         PATH_MAX - 1);
    if (access(program, X_OK) != 0)
        return error_set_errno(error, STATUS_NOT_FOUND, "%s cannot be run", program);
    TRY(child_init(&member->child, cluster->loop, name, program, cluster->options->folder, on_news,
                   member, error));
    child_add_option(&member->child, "--secret-file", cluster->options->secret_file);
    member->cluster = cluster;
    member->timer = loop_timer_create(cluster->loop, on_member_timer, member);
    cluster->member_count++;
    return STATUS_OK;
}

static enum status router_add(struct cluster *cluster, struct error *error)
{
    const struct cluster_options *options = cluster->options;
    TRY(member_add(cluster, "router", "baton-router", error));
    struct child *child = &cluster->members[0].child;
    for (uint32_t i = 0; i < options->model_count; i++)
        child_add_option(child, "--model", options->models[i].operand);
    child_add_option(child, "--http", options->http);
    child_add_option(child, "--control", "127.0.0.1:0");
    child_add_option(child, "--state-dir", options->folder);
    if (options->model_name)
        child_add_option(child, "--model-name", options->model_name);
    for (uint32_t i = 0; i < options->chat_template_count; i++)
        child_add_option(child, "--chat-template", options->chat_templates[i]);
    return STATUS_OK;
}

static enum status worker_add(struct cluster *cluster, const struct cluster_model *model,
                              const char *role, uint32_t index, struct error *error)
{
    const struct cluster_options *options = cluster->options;
    char name[CHILD_NAME_BYTES], binary[32];
    snprintf(name, sizeof name, "%s-%u", role, index);
    snprintf(binary, sizeof binary, "baton-%s", role);
    TRY(member_add(cluster, name, binary, error));
    struct child *child = &cluster->members[cluster->member_count - 1].child;
    child_add_option(child, "--model", model->path);
    child_add_option(child, "--name", child->name);
    if (options->model_count > 1) {
        child->label = model->name;
        child_add_option(child, "--model-name", model->name);
    }
    child_add_number(child, "--threads", options->threads);
    child_add_option(child, "--kv-dtype", options->kv_dtype);
    if (options->mover)
        child_add_option(child, "--mover", options->mover);
    if (options->kv_memory)
        child_add_option(child, "--kv-memory", options->kv_memory);
    if (options->kv_memory_of)
        child_add_number(child, "--kv-memory-of", options->kv_memory_of);
    if (options->kv_prefault)
        child_add_option(child, "--kv-prefault", NULL);
    if (options->context_tokens)
        child_add_number(child, "--context", options->context_tokens);
    if (options->chunk_tokens)
        child_add_number(child, "--chunk-tokens", options->chunk_tokens);
    if (options->no_prefix_cache)
        child_add_option(child, "--no-prefix-cache", NULL);
    if (strcmp(role, "decode") != 0)
        return STATUS_OK;
    child_add_option(child, "--data", "127.0.0.1:0");
    if (options->max_batch)
        child_add_number(child, "--max-batch", options->max_batch);
    return STATUS_OK;
}

static enum status faults_check(const struct cluster *cluster, struct error *error)
{
    const struct cluster_options *options = cluster->options;
    for (uint32_t i = 0; i < options->fault_count; i++) {
        const char *fault = options->faults[i];
        const size_t name_bytes = strcspn(fault, "=");
        bool known = false;
        for (uint32_t m = 0; m < cluster->member_count && fault[name_bytes] != '\0'; m++) {
            const char *name = cluster->members[m].child.name;
            known |= strlen(name) == name_bytes && strncmp(fault, name, name_bytes) == 0;
            for (uint32_t other = 0; other < i && known; other++)
                if (strncmp(options->faults[other], fault, name_bytes + 1) == 0)
                    return error_set(error, STATUS_INVALID,
                                     "--fault: %s is named twice; put commas between its faults",
                                     name);
        }
        if (!known)
            return error_set(error, STATUS_INVALID,
                             "--fault: \"%.60s\" does not begin with the name of a process, as in "
                             "prefill-0=data-send:drop",
                             fault);
    }
    return STATUS_OK;
}

static enum status members_add(struct cluster *cluster, struct error *error)
{
    const struct cluster_options *options = cluster->options;
    TRY(router_add(cluster, error));
    for (uint32_t i = 0; i < options->model_count * options->prefill_count; i++)
        TRY(worker_add(cluster, &options->models[i / options->prefill_count], "prefill", i, error));
    for (uint32_t i = 0; i < options->model_count * options->decode_count; i++)
        TRY(worker_add(cluster, &options->models[i / options->decode_count], "decode", i, error));
    return faults_check(cluster, error);
}

static void cluster_destroy(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->member_count; i++) {
        CHECK(cluster->members[i].child.pid == 0);
        loop_timer_destroy(cluster->members[i].timer);
    }
    for (size_t i = 0; i < ARRAY_COUNT(cluster->signals); i++)
        loop_signal_destroy(cluster->signals[i]);
    loop_timer_destroy(cluster->timer);
    report_destroy(cluster->report);
    loop_destroy(cluster->loop);
    free(cluster);
}

enum status cluster_run(const struct cluster_options *options, struct error *error)
{
    struct cluster *cluster = calloc(1, sizeof *cluster);
    CHECK(cluster != NULL);
    cluster->options = options;
    cluster->error = error;
    cluster->loop = loop_create();
    cluster->report = report_create();
    cluster->timer = loop_timer_create(cluster->loop, on_deadline, cluster);
    cluster->signals[0] = loop_signal_create(cluster->loop, SIGINT, on_stop_signal, cluster);
    cluster->signals[1] = loop_signal_create(cluster->loop, SIGTERM, on_stop_signal, cluster);
    cluster->signals[2] = loop_signal_create(cluster->loop, SIGCHLD, on_child_signal, cluster);

    enum status status = members_add(cluster, error);
    if (status == STATUS_OK)
        status = member_start(&cluster->members[0], error);
    if (status == STATUS_OK) {
        loop_timer_start(cluster->timer, options->start_timeout_ms, 0);
        loop_run(cluster->loop);
        status = cluster->result;
    }
    cluster_destroy(cluster);
    return status;
}
