#include "router/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/ring.h"
#include "router/journal_tables_internal.h"

enum {
    BATCH_RECORDS = 256,
    PATH_BYTES = 4096,
    PRUNE_EVERY_BATCHES = 64,
    WAL_BYTES_MAX = 16 << 20,
    IDLE_WAIT_MS = 1000,
    GATHER_MS = 10,
    PAGE_BYTES = 4096,  /* SQLite's own choice for a new file */
    PAGES_A_RECORD = 2, /* at most: rows and their places in the indexes */
    PAGES_A_BATCH = 16,
};

enum record_kind { RECORD_REQUEST, RECORD_WORKER };

struct record {
    enum record_kind kind;
    uint64_t at_ms;
    union {
        struct journal_request request;
        struct journal_worker worker;
    };
};

enum statement {
    PUT_REQUEST,
    PUT_REQUEST_STATE,
    PUT_WORKER,
    PUT_WORKER_STATE,
    PRUNE_STATES,
    PRUNE_REQUESTS,
    PRUNE_WORKER_STATES,
    PRUNE_WORKERS,
    GET_SPANS,
    GET_PAGES,
    STATEMENT_COUNT,
};

static const char *const statement_text[STATEMENT_COUNT] = {
    [PUT_REQUEST] =
        "INSERT INTO requests(id, router, client_id, endpoint, accepted_ms, state, prefill, decode,"
        " prompt_tokens, max_tokens, output_tokens, first_token_us, duration_us, http_status,"
        " outcome, reason, tenant, trace_id, model)"
        " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19)"
        " ON CONFLICT(id) DO UPDATE SET state=?6, prefill=?7, decode=?8, prompt_tokens=?9,"
        " max_tokens=?10, output_tokens=?11, first_token_us=?12, duration_us=?13, http_status=?14,"
        " outcome=?15, reason=?16, model=?19",
    [PUT_REQUEST_STATE] = "INSERT INTO request_states(request, at_ms, state) VALUES(?1,?2,?3)",
    [PUT_WORKER] =
        "INSERT INTO workers(boot_id, node, role, address, version, model, state, reason, first_ms,"
        " changed_ms) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?9)"
        " ON CONFLICT(boot_id) DO UPDATE SET state=?7, reason=?8, address=?4, changed_ms=?9",
    [PUT_WORKER_STATE] =
        "INSERT INTO worker_states(boot_id, at_ms, state, reason) VALUES(?1,?2,?3,?4)",
    [PRUNE_STATES] = "DELETE FROM request_states WHERE request IN (SELECT id FROM requests WHERE"
                     " number <= (SELECT max(number) FROM requests) - ?1)",
    [PRUNE_REQUESTS] =
        "DELETE FROM requests WHERE number <= (SELECT max(number) FROM requests) - ?1",
    [PRUNE_WORKER_STATES] =
        "DELETE FROM worker_states WHERE rowid <= (SELECT max(rowid) FROM worker_states) - ?1",
    [PRUNE_WORKERS] =
        "DELETE FROM workers WHERE state IN ('lost', 'left') AND boot_id NOT IN (SELECT boot_id"
        " FROM worker_states)",
    [GET_SPANS] = "SELECT (SELECT max(number) - min(number) + 1 FROM requests),"
                  " (SELECT max(rowid) - min(rowid) + 1 FROM worker_states)",
    [GET_PAGES] = "PRAGMA page_count",
};

struct journal {
    struct journal_options options;
    char path[PATH_BYTES];
    int lock_fd;
    struct ring *ring;
    pthread_t thread;
    atomic_bool stopping;
    _Atomic uint64_t offered, written, dropped, damaged, bytes;
    atomic_bool healthy, open;

    /* The writer thread's own. */
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    uint64_t retry_ns; /* no attempt before; 0: at once */
    uint64_t batches;
    bool trouble_told;
};

/* ---- the writer: the file ---- */

static void close_file(struct journal *journal)
{
    atomic_store(&journal->open, false);
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        sqlite3_finalize(journal->statements[i]);
        journal->statements[i] = NULL;
    }
    sqlite3_close(journal->db);
    journal->db = NULL;
}

static bool is_damage(int code)
{
    return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

/* A damaged file is kept for whoever wants to know, never deleted. */
static void move_aside(struct journal *journal)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char from[PATH_BYTES + 8], to[PATH_BYTES + 64];
    const unsigned long long now_ms = clock_wall_ms();
    for (size_t i = 0; i < ARRAY_COUNT(suffixes); i++) {
        snprintf(from, sizeof from, "%s%s", journal->path, suffixes[i]);
        snprintf(to, sizeof to, "%s.damaged-%llu%s", journal->path, now_ms, suffixes[i]);
        if (rename(from, to) != 0 && errno != ENOENT)
            LOG_ERROR("the damaged journal %s can not be moved aside: %s", from, strerror(errno));
    }
    atomic_fetch_add(&journal->damaged, 1);
    LOG_WARN("the journal %s is damaged; it is kept as %s.damaged-%llu and a new one is begun",
             journal->path, journal->path, now_ms);
}

static void set_health(struct journal *journal, bool healthy, const char *cause)
{
    atomic_store(&journal->healthy, healthy);
    if (healthy == !journal->trouble_told)
        return;
    journal->trouble_told = !healthy;
    if (healthy)
        LOG_INFO("the journal %s is written again", journal->path);
    else
        LOG_WARN("the journal %s can not be written, serving goes on without: %s", journal->path,
                 cause);
}

static int execute(struct journal *journal, const char *sql)
{
    return sqlite3_exec(journal->db, sql, NULL, NULL, NULL);
}

static int set_up_file(struct journal *journal)
{
    char text[256];
    int code =
        sqlite3_open_v2(journal->path, &journal->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite3_busy_timeout(journal->db, (int)journal->options.busy_ms);
    snprintf(text, sizeof text,
             "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=%d;"
             "PRAGMA wal_autocheckpoint=1000; PRAGMA max_page_count=%llu;",
             WAL_BYTES_MAX, (unsigned long long)(journal->options.bytes_max / PAGE_BYTES));
    if ((code = execute(journal, text)) != SQLITE_OK ||
        (code = journal_tables_make(journal->db, journal->path)) != SQLITE_OK)
        return code;
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        code = sqlite3_prepare_v3(journal->db, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                                  &journal->statements[i], NULL);
        if (code != SQLITE_OK)
            return code;
    }
    return journal_tables_end_orphans(journal->db, journal->options.router);
}

/* True when the file is open. A fault is met here once, and then not before retry_ms. */
static bool open_file(struct journal *journal)
{
    if (journal->db)
        return true;
    if (clock_now_ns(clock_monotonic()) < journal->retry_ns)
        return false;
    int code = set_up_file(journal);
    if (is_damage(code)) {
        close_file(journal);
        move_aside(journal);
        code = set_up_file(journal);
    }
    if (code == SQLITE_OK) {
        atomic_store(&journal->open, true);
        return true;
    }
    set_health(journal, false, journal->db ? sqlite3_errmsg(journal->db) : sqlite3_errstr(code));
    close_file(journal);
    journal->retry_ns =
        clock_now_ns(clock_monotonic()) + (uint64_t)journal->options.retry_ms * NS_PER_MS;
    return false;
}

/* ---- the writer: records ---- */

static void bind_text(sqlite3_stmt *statement, int index, const char *text)
{
    if (text && text[0])
        sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(statement, index);
}

/* NOT NULL columns keep an empty text. */
static void bind_name(sqlite3_stmt *statement, int index, const char *text)
{
    sqlite3_bind_text(statement, index, text ? text : "", -1, SQLITE_STATIC);
}

static void bind_known(sqlite3_stmt *statement, int index, uint64_t value)
{
    if (value > 0)
        sqlite3_bind_int64(statement, index, (sqlite3_int64)value);
    else
        sqlite3_bind_null(statement, index);
}

static int run(struct journal *journal, enum statement which)
{
    sqlite3_stmt *statement = journal->statements[which];
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* The row of a request; first_ms: when it was first heard of, if this is news. */
static int write_request_row(struct journal *journal, const struct journal_request *request,
                             const char *id, uint64_t first_ms)
{
    sqlite3_stmt *row = journal->statements[PUT_REQUEST];
    bind_name(row, 1, id);
    bind_name(row, 2, journal->options.router);
    bind_name(row, 3, request->client_id);
    bind_name(row, 4, request->endpoint);
    sqlite3_bind_int64(row, 5, (sqlite3_int64)first_ms);
    bind_name(row, 6, request->state);
    bind_text(row, 7, request->prefill);
    bind_text(row, 8, request->decode);
    bind_known(row, 9, request->prompt_tokens);
    bind_known(row, 10, request->max_tokens);
    sqlite3_bind_int64(row, 11, request->output_tokens);
    bind_known(row, 12, request->first_token_us);
    bind_known(row, 13, request->duration_us);
    bind_known(row, 14, (uint64_t)request->http_status);
    bind_text(row, 15, request->outcome);
    bind_text(row, 16, request->reason);
    bind_text(row, 17, request->tenant);
    bind_text(row, 18, request->trace_id);
    bind_text(row, 19, request->model);
    const int code = run(journal, PUT_REQUEST);
    sqlite3_clear_bindings(row);
    return code;
}

static bool is_of(const struct record *record, uint64_t id)
{
    return record->kind == RECORD_REQUEST && record->request.id == id;
}

/* Record `at` of a batch. Most requests come whole in one batch: only the last record of each makes
 * its row, for the earlier ones would be overwritten. */
static int write_request(struct journal *journal, const struct record *records, size_t count,
                         size_t at)
{
    const struct record *record = &records[at];
    const struct journal_request *request = &record->request;
    char id[17];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)request->id);
    size_t first = 0, later = at + 1;
    while (!is_of(&records[first], request->id))
        first++;
    while (later < count && !is_of(&records[later], request->id))
        later++;
    int code =
        later < count ? SQLITE_OK : write_request_row(journal, request, id, records[first].at_ms);
    if (code != SQLITE_OK)
        return code;
    sqlite3_stmt *state = journal->statements[PUT_REQUEST_STATE];
    bind_name(state, 1, id);
    sqlite3_bind_int64(state, 2, (sqlite3_int64)record->at_ms);
    bind_name(state, 3, request->state);
    code = run(journal, PUT_REQUEST_STATE);
    sqlite3_clear_bindings(state);
    return code;
}

static int write_worker(struct journal *journal, const struct record *record)
{
    const struct journal_worker *worker = &record->worker;
    char boot[33];
    for (int i = 0; i < 16; i++)
        snprintf(boot + 2 * i, 3, "%02x", worker->boot_id[i]);
    sqlite3_stmt *row = journal->statements[PUT_WORKER];
    bind_name(row, 1, boot);
    bind_name(row, 2, worker->node);
    bind_name(row, 3, worker->role);
    bind_name(row, 4, worker->address);
    bind_name(row, 5, worker->version);
    bind_name(row, 6, worker->model);
    bind_name(row, 7, worker->state);
    bind_text(row, 8, worker->reason);
    sqlite3_bind_int64(row, 9, (sqlite3_int64)record->at_ms);
    int code = run(journal, PUT_WORKER);
    sqlite3_clear_bindings(row);
    if (code != SQLITE_OK)
        return code;
    sqlite3_stmt *state = journal->statements[PUT_WORKER_STATE];
    bind_name(state, 1, boot);
    sqlite3_bind_int64(state, 2, (sqlite3_int64)record->at_ms);
    bind_name(state, 3, worker->state);
    bind_text(state, 4, worker->reason);
    code = run(journal, PUT_WORKER_STATE);
    sqlite3_clear_bindings(state);
    return code;
}

/* So many of the latest requests and changes of workers stay, and the workers in them or not lost.
 */
static int prune(struct journal *journal, const sqlite3_int64 keep[2])
{
    int code = SQLITE_OK;
    for (enum statement which = PRUNE_STATES; which < PRUNE_WORKERS && code == SQLITE_OK; which++) {
        sqlite3_bind_int64(journal->statements[which], 1, keep[which == PRUNE_WORKER_STATES]);
        code = run(journal, which);
    }
    return code == SQLITE_OK ? run(journal, PRUNE_WORKERS) : code;
}

static int prune_over_limit(struct journal *journal)
{
    const sqlite3_int64 most = (sqlite3_int64)journal->options.requests_max;
    return prune(journal, (const sqlite3_int64[]){most, most});
}

/* Whether so many records may have needed more pages than there are left below bytes_max; the file
 * is as before them then. On a full disk nothing could be written whatever is deleted. */
static bool is_near_limit(struct journal *journal, size_t records)
{
    sqlite3_stmt *statement = journal->statements[GET_PAGES];
    const uint64_t most = journal->options.bytes_max / PAGE_BYTES;
    const uint64_t more = PAGES_A_RECORD * records + PAGES_A_BATCH;
    const bool near = sqlite3_step(statement) == SQLITE_ROW &&
                      (uint64_t)sqlite3_column_int64(statement, 0) + more > most;
    sqlite3_reset(statement);
    return near;
}

/* The oldest eighths of what is there go. */
static int prune_oldest(struct journal *journal, int eighths)
{
    sqlite3_stmt *statement = journal->statements[GET_SPANS];
    sqlite3_int64 keep[2] = {0, 0};
    int code = sqlite3_step(statement);
    for (int i = 0; i < 2 && code == SQLITE_ROW; i++)
        keep[i] = sqlite3_column_int64(statement, i) * (8 - eighths) / 8;
    sqlite3_reset(statement);
    return code == SQLITE_ROW ? prune(journal, keep) : code;
}

/* eighths: of what is there, to be given up for the batch. If that is not enough, all stays. */
static int write_batch(struct journal *journal, const struct record *records, size_t count,
                       int eighths)
{
    int code = execute(journal, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return code;
    if (eighths > 0)
        code = prune_oldest(journal, eighths);
    for (size_t i = 0; i < count && code == SQLITE_OK; i++)
        code = records[i].kind == RECORD_REQUEST ? write_request(journal, records, count, i)
                                                 : write_worker(journal, &records[i]);
    if (code == SQLITE_OK && ++journal->batches % PRUNE_EVERY_BATCHES == 0)
        code = prune_over_limit(journal);
    if (code == SQLITE_OK)
        code = execute(journal, "COMMIT");
    if (code != SQLITE_OK && !sqlite3_get_autocommit(journal->db))
        execute(journal, "ROLLBACK");
    return code;
}

static void measure(struct journal *journal)
{
    char wal[PATH_BYTES + 8];
    snprintf(wal, sizeof wal, "%s-wal", journal->path);
    struct stat info;
    uint64_t bytes = 0;
    if (stat(journal->path, &info) == 0)
        bytes += (uint64_t)info.st_size;
    if (stat(wal, &info) == 0)
        bytes += (uint64_t)info.st_size;
    atomic_store(&journal->bytes, bytes);
}

/* At its limit of bytes a file goes on with the latest: as few of the oldest as will do give way.
 */
static int write_in_room(struct journal *journal, const struct record *records, size_t count)
{
    int code = write_batch(journal, records, count, 0);
    for (int eighths = 1; eighths < 8 && code == SQLITE_FULL && is_near_limit(journal, count);
         eighths *= 2)
        code = write_batch(journal, records, count, eighths);
    return code;
}

/* Writes or drops the batch. What failed once is not tried again with the same records: a full disk
 * does not empty itself, and a lock was waited for already. */
static void commit(struct journal *journal, const struct record *records, size_t count)
{
    if (!open_file(journal)) {
        atomic_fetch_add(&journal->dropped, count);
        return;
    }
    int code = write_in_room(journal, records, count);
    if (is_damage(code)) {
        close_file(journal);
        move_aside(journal);
        if (open_file(journal))
            code = write_in_room(journal, records, count);
    }
    if (code == SQLITE_OK) {
        atomic_fetch_add(&journal->written, count);
        set_health(journal, true, NULL);
        measure(journal);
        return;
    }
    atomic_fetch_add(&journal->dropped, count);
    set_health(journal, false, sqlite3_errstr(code)); /* that of the file is of the rollback */
    close_file(journal);
    journal->retry_ns =
        clock_now_ns(clock_monotonic()) + (uint64_t)journal->options.retry_ms * NS_PER_MS;
}

static size_t take_batch(struct journal *journal, struct record *records)
{
    size_t count = 0;
    while (count < BATCH_RECORDS && ring_pop(journal->ring, &records[count]) == STATUS_OK)
        count++;
    return count;
}

/* A commit costs as much for one record as for many, and a writer that waits for the next record
 * has to be woken for it: under load both are paid a hundred times a second, not thousands. */
static void gather(void)
{
    const struct timespec pause = {.tv_nsec = GATHER_MS * NS_PER_MS};
    nanosleep(&pause, NULL);
}

static void *writer_main(void *arg)
{
    struct journal *journal = arg;
    struct record *records = calloc(BATCH_RECORDS, sizeof *records);
    CHECK(records != NULL);
    bool idle = true;
    if (open_file(journal)) /* a fault shows at once, not with the first request */
        set_health(journal, true, NULL);
    for (;;) {
        const size_t count = take_batch(journal, records);
        if (count > 0) {
            commit(journal, records, count);
            idle = false;
            if (count < BATCH_RECORDS)
                gather();
            continue;
        }
        if (atomic_load(&journal->stopping))
            break;
        if (!idle && !ring_wait(journal->ring, IDLE_WAIT_MS)) {
            idle = true;
            if (journal->db) /* nothing to do: give the log's space back */
                sqlite3_wal_checkpoint_v2(journal->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                          NULL);
            measure(journal);
        } else if (idle) {
            ring_wait(journal->ring, IDLE_WAIT_MS);
        }
    }
    close_file(journal);
    free(records);
    return NULL;
}

/* ---- the loop thread's side ---- */

static enum status take_directory(struct journal *journal, struct error *error)
{
    const char *directory = journal->options.directory;
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return error_set_errno(error, STATUS_IO, "the state directory %s can not be made",
                               directory);
    char path[PATH_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/router.lock", directory) >= sizeof path)
        return error_set(error, STATUS_LIMIT, "the state directory's path is longer than %d bytes",
                         PATH_BYTES - 16);
    snprintf(journal->path, sizeof journal->path, "%.*s/baton.sqlite", PATH_BYTES - 16, directory);
    journal->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (journal->lock_fd < 0)
        return error_set_errno(error, STATUS_IO, "the state directory %s can not be written",
                               directory);
    if (flock(journal->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        error_set(error, STATUS_IO,
                  "the state directory %s is in use by another router; give --state-dir another",
                  directory);
        close(journal->lock_fd);
        return STATUS_IO;
    }
    return STATUS_OK;
}

enum status journal_open(const struct journal_options *options, struct journal **out,
                         struct error *error)
{
    struct journal *journal = calloc(1, sizeof *journal);
    CHECK(journal != NULL);
    journal->options = *options;
    const enum status status = take_directory(journal, error);
    if (status != STATUS_OK) {
        free(journal);
        return status;
    }
    atomic_init(&journal->healthy, true);
    journal->ring = ring_create(sizeof(struct record), options->records_max);
    CHECK(pthread_create(&journal->thread, NULL, writer_main, journal) == 0);
    *out = journal;
    return STATUS_OK;
}

void journal_close(struct journal *journal)
{
    if (!journal)
        return;
    atomic_store(&journal->stopping, true);
    ring_interrupt(journal->ring);
    pthread_join(journal->thread, NULL);
    ring_destroy(journal->ring);
    close(journal->lock_fd);
    free(journal);
}

static void put(struct journal *journal, const struct record *record)
{
    atomic_fetch_add(&journal->offered, 1);
    if (ring_push(journal->ring, record) != STATUS_OK)
        atomic_fetch_add(&journal->dropped, 1);
}

void journal_put_request(struct journal *journal, const struct journal_request *record)
{
    const struct record item = {
        .kind = RECORD_REQUEST, .at_ms = clock_wall_ms(), .request = *record};
    put(journal, &item);
}

void journal_put_worker(struct journal *journal, const struct journal_worker *record)
{
    const struct record item = {.kind = RECORD_WORKER, .at_ms = clock_wall_ms(), .worker = *record};
    put(journal, &item);
}

const char *journal_path(const struct journal *journal)
{
    return atomic_load(&journal->open) ? journal->path : NULL;
}

struct journal_stats journal_stats(const struct journal *journal)
{
    return (struct journal_stats){
        .written = atomic_load(&journal->written),
        .dropped = atomic_load(&journal->dropped),
        .damaged = atomic_load(&journal->damaged),
        .bytes = atomic_load(&journal->bytes),
        .healthy = atomic_load(&journal->healthy),
    };
}

bool journal_settle(struct journal *journal, uint32_t timeout_ms)
{
    const uint64_t end_ns = clock_now_ns(clock_monotonic()) + (uint64_t)timeout_ms * NS_PER_MS;
    for (;;) {
        const struct journal_stats stats = journal_stats(journal);
        if (stats.written + stats.dropped >= atomic_load(&journal->offered))
            return true;
        if (clock_now_ns(clock_monotonic()) > end_ns)
            return false;
        const struct timespec pause = {.tv_nsec = NS_PER_MS};
        nanosleep(&pause, NULL);
    }
}
