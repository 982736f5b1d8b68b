/* The journal when all is well, and when its file is locked, full, damaged or not writable. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "router/journal.h"
#include "router/journal_read.h"
#include "tests/router/scratch_folder.h"

enum { SETTLE_MS = 100000 };

static const char *folder;
static char file[300];
static struct journal *journal;

static void set_up(void)
{
    folder = scratch_folder();
    snprintf(file, sizeof file, "%s/baton.sqlite", folder);
}

TestSuite(journal, .init = set_up);

static struct journal_options options_of(void)
{
    return (struct journal_options){.directory = folder,
                                    .router = "cafe",
                                    .records_max = 4096,
                                    .busy_ms = 20,
                                    .retry_ms = 20,
                                    .bytes_max = 64 << 20,
                                    .requests_max = 1000};
}

static void open_journal(const struct journal_options *options)
{
    struct error error = {.text = ""};
    cr_assert_eq(journal_open(options, &journal, &error), STATUS_OK, "%s", error.text);
}

static void put(uint64_t id, const char *state)
{
    struct journal_request record = {.id = id,
                                     .endpoint = "chat",
                                     .state = state,
                                     .prompt_tokens = 12,
                                     .outcome = strcmp(state, "ended") == 0 ? "stop" : NULL};
    snprintf(record.client_id, sizeof record.client_id, "client-%llu", (unsigned long long)id);
    snprintf(record.decode, sizeof record.decode, "d0");
    journal_put_request(journal, &record);
}

static void settle(void)
{
    cr_assert(journal_settle(journal, SETTLE_MS));
}

/* New records until one is taken: the writer tries again after its pause. */
static void put_until_healthy(uint64_t id)
{
    const uint64_t end_ns = clock_now_ns(clock_monotonic()) + 100 * (uint64_t)NS_PER_S;
    while (!journal_stats(journal).healthy && clock_now_ns(clock_monotonic()) < end_ns) {
        put(id++, "queued");
        settle();
    }
}

/* One value, by the command-line shell: another program can read the file. */
static void expect_value(const char *sql, const char *wanted)
{
    char command[1024];
    struct buffer out = {0};
    snprintf(command, sizeof command, "sqlite3 '%s' \"%s\"", file, sql);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe);
    char line[256];
    while (fgets(line, sizeof line, pipe))
        buffer_add_text(&out, line);
    cr_assert_eq(pclose(pipe), 0);
    if (out.size > 0 && out.data[out.size - 1] == '\n')
        out.data[--out.size] = '\0';
    cr_expect_str_eq(out.data ? out.data : "", wanted, "%s", sql);
    buffer_free(&out);
}

Test(journal, keeps_requests_with_their_states)
{
    const struct journal_options options = options_of();
    open_journal(&options);
    put(1, "queued");
    put(1, "decoding");
    put(1, "ended");
    put(2, "queued");
    struct journal_worker worker = {.role = "decode", .state = "up", .boot_id = {0xab}};
    snprintf(worker.node, sizeof worker.node, "d0");
    journal_put_worker(journal, &worker);
    worker.state = "lost";
    journal_put_worker(journal, &worker);
    settle();
    expect_value("SELECT count(*) FROM requests", "2");
    expect_value("SELECT state||outcome||decode||prompt_tokens FROM requests WHERE "
                 "id='0000000000000001'",
                 "endedstopd012");
    expect_value("SELECT group_concat(state) FROM request_states WHERE "
                 "request='0000000000000001'",
                 "queued,decoding,ended");
    expect_value("SELECT node||state FROM workers", "d0lost");
    expect_value("SELECT count(*) FROM worker_states", "2");
    expect_value("PRAGMA journal_mode", "wal");
    cr_expect_eq(journal_stats(journal).written, 6);
    journal_close(journal);
}

/* A file of the first version is taken along, with what it holds. */
Test(journal, an_older_file_gets_what_is_new)
{
    const struct journal_options options = options_of();
    open_journal(&options);
    put(1, "ended");
    journal_close(journal);
    expect_value("ALTER TABLE requests DROP COLUMN tenant;"
                 " ALTER TABLE requests DROP COLUMN trace_id;"
                 " ALTER TABLE requests DROP COLUMN model; PRAGMA user_version=1",
                 "");
    open_journal(&options);
    struct journal_request request = {
        .id = 2, .endpoint = "chat", .state = "queued", .tenant = "acme", .model = "m"};
    journal_put_request(journal, &request);
    settle();
    journal_close(journal);
    expect_value("SELECT count(*), max(tenant) FROM requests", "2|acme");
    expect_value("SELECT count(*) FROM requests WHERE trace_id IS NULL", "2");
    expect_value("SELECT count(model), max(model) FROM requests", "1|m");
    expect_value("PRAGMA user_version", "4");
    /* A newer one is left alone. */
    expect_value("PRAGMA user_version=5", "");
    open_journal(&options);
    put(3, "queued");
    settle();
    cr_expect(!journal_stats(journal).healthy);
    journal_close(journal);
    expect_value("SELECT count(*) FROM requests", "2");
}

Test(journal, closes_what_an_earlier_life_left_open)
{
    struct journal_options options = options_of();
    open_journal(&options);
    put(1, "decoding");
    journal_close(journal);
    snprintf(options.router, sizeof options.router, "beef");
    open_journal(&options);
    put(2, "queued");
    settle();
    expect_value("SELECT outcome FROM requests WHERE id='0000000000000001'", "lost");
    expect_value("SELECT state FROM requests WHERE id='0000000000000002'", "queued");
    journal_close(journal);
}

Test(journal, one_router_a_directory)
{
    const struct journal_options options = options_of();
    open_journal(&options);
    struct journal *second;
    struct error error = {.text = ""};
    cr_expect_eq(journal_open(&options, &second, &error), STATUS_IO);
    cr_expect(strstr(error.text, "in use"), "%s", error.text);
    journal_close(journal);
}

Test(journal, a_directory_that_can_not_be_made_is_an_error)
{
    struct journal_options options = options_of();
    options.directory = "/proc/none/here";
    struct error error = {.text = ""};
    cr_expect_eq(journal_open(&options, &journal, &error), STATUS_IO);
    cr_expect(strstr(error.text, "/proc/none/here"), "%s", error.text);
}

/* Another program holds the write lock until it is told to let go. */
static pid_t lock_elsewhere(int *release_out)
{
    int to[2], from[2];
    cr_assert(pipe(to) == 0 && pipe(from) == 0);
    const pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execlp("sqlite3", "sqlite3", file, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    static const char begin[] = ".timeout 5000\nBEGIN IMMEDIATE;\nSELECT 'locked';\n";
    cr_assert_eq(write(to[1], begin, sizeof begin - 1), (ssize_t)sizeof begin - 1);
    char answer[16] = "";
    cr_assert_gt(read(from[0], answer, sizeof answer - 1), 0);
    cr_assert(strstr(answer, "locked"), "%s", answer);
    close(from[0]);
    *release_out = to[1];
    return child;
}

Test(journal, a_lock_elsewhere_costs_records_not_time)
{
    const struct journal_options options = options_of();
    open_journal(&options);
    put(1, "queued");
    settle();
    int release;
    const pid_t child = lock_elsewhere(&release);
    put(2, "queued");
    settle();
    cr_expect_eq(journal_stats(journal).dropped, 1);
    cr_expect(!journal_stats(journal).healthy);
    close(release); /* the shell ends and rolls back */
    waitpid(child, NULL, 0);
    put_until_healthy(3);
    cr_expect(journal_stats(journal).healthy, "it recovers by itself");
    expect_value("SELECT count(*) FROM requests WHERE id='0000000000000002'", "0");
    journal_close(journal);
}

/* Far fewer than requests_max fit into so few pages. */
Test(journal, at_its_limit_of_bytes_the_oldest_requests_give_way)
{
    enum { PAGES = 64, REQUESTS = 3000 };
    struct journal_options options = options_of();
    options.requests_max = 1 << 20;
    options.bytes_max = PAGES * 4096;
    open_journal(&options);
    for (uint64_t id = 1; id <= REQUESTS; id++) {
        put(id, "queued");
        if (id % 50 == 0)
            settle();
    }
    settle();
    const struct journal_stats stats = journal_stats(journal);
    cr_expect_eq(stats.dropped, 0);
    cr_expect_eq(stats.written, REQUESTS);
    cr_expect(stats.healthy);
    journal_close(journal);
    expect_value("PRAGMA integrity_check", "ok");
    expect_value("SELECT page_count <= 64 FROM pragma_page_count()", "1");
    expect_value("SELECT id FROM requests ORDER BY number DESC LIMIT 1", "0000000000000bb8");
    expect_value("SELECT count(*) FROM requests WHERE id = '0000000000000001'", "0");
    expect_value("SELECT count(*) FROM request_states WHERE request NOT IN (SELECT id FROM "
                 "requests)",
                 "0");
}

/* A batch that is larger than all there may be leaves what is there. */
Test(journal, a_file_that_is_too_small_costs_records_only)
{
    struct journal_options options = options_of();
    options.bytes_max = 16 * 4096;
    open_journal(&options);
    for (uint64_t id = 1; id <= 3000; id++)
        put(id, "queued");
    settle();
    const struct journal_stats stats = journal_stats(journal);
    cr_expect_gt(stats.dropped, 0);
    cr_expect_eq(stats.written + stats.dropped, 3000);
    cr_expect_eq(stats.damaged, 0);
    journal_close(journal);
    expect_value("PRAGMA integrity_check", "ok");
}

Test(journal, a_damaged_file_is_kept_aside_and_a_new_one_begun)
{
    FILE *out = fopen(file, "w");
    cr_assert(out);
    for (int i = 0; i < 1000; i++)
        fputs("this is no database ", out);
    fclose(out);
    const struct journal_options options = options_of();
    open_journal(&options);
    put(1, "queued");
    settle();
    cr_expect_eq(journal_stats(journal).damaged, 1);
    cr_expect_eq(journal_stats(journal).written, 1);
    cr_expect(journal_stats(journal).healthy);
    expect_value("SELECT count(*) FROM requests", "1");
    char command[400];
    snprintf(command, sizeof command, "test -s '%s'/baton.sqlite.damaged-*", folder);
    cr_expect_eq(system(command), 0, "the damaged file is still there");
    journal_close(journal);
}

Test(journal, a_file_that_is_a_folder_costs_records_only)
{
    cr_assert_eq(mkdir(file, 0700), 0);
    const struct journal_options options = options_of();
    open_journal(&options);
    put(1, "queued");
    settle();
    cr_expect_eq(journal_stats(journal).dropped, 1);
    cr_expect(!journal_stats(journal).healthy);
    cr_assert_eq(rmdir(file), 0);
    put_until_healthy(2);
    cr_expect(journal_stats(journal).healthy);
    journal_close(journal);
}

Test(journal, a_full_queue_drops_and_counts)
{
    struct journal_options options = options_of();
    options.records_max = 2;
    open_journal(&options);
    for (uint64_t id = 1; id <= 500; id++)
        put(id, "queued");
    settle();
    const struct journal_stats stats = journal_stats(journal);
    cr_expect_eq(stats.written + stats.dropped, 500);
    journal_close(journal);
}

Test(journal, old_requests_give_way)
{
    struct journal_options options = options_of();
    options.requests_max = 50;
    options.records_max = 1 << 16;
    open_journal(&options);
    /* Small batches, so that many commits happen. */
    for (uint64_t id = 1; id <= 400; id++) {
        put(id, "queued");
        if (id % 3 == 0)
            settle();
    }
    settle();
    expect_value("SELECT count(*) < 400 FROM requests", "1");
    expect_value("SELECT count(*) FROM requests WHERE id='0000000000000190'", "1");
    expect_value("SELECT count(*) FROM request_states WHERE request='0000000000000001'", "0");
    journal_close(journal);
}

Test(journal, old_lives_of_workers_give_way)
{
    struct journal_options options = options_of();
    options.requests_max = 50;
    open_journal(&options);
    struct journal_worker worker = {.role = "decode", .state = "up", .boot_id = {0xff}};
    snprintf(worker.node, sizeof worker.node, "stays");
    journal_put_worker(journal, &worker);
    snprintf(worker.node, sizeof worker.node, "d0");
    for (int life = 1; life <= 200; life++) {
        memset(worker.boot_id, life, sizeof worker.boot_id);
        worker.state = "up";
        journal_put_worker(journal, &worker);
        worker.state = "lost";
        journal_put_worker(journal, &worker);
        settle();
    }
    expect_value("SELECT count(*) < 200 FROM worker_states", "1");
    expect_value("SELECT count(*) < 150 FROM workers", "1");
    expect_value("SELECT count(*) FROM workers WHERE node='stays'", "1");
    journal_close(journal);
}

Test(journal, a_reader_says_why_it_can_not_read)
{
    struct buffer out = {0};
    struct error error;
    cr_expect_eq(journal_read_recent(file, NULL, &out, &error), STATUS_IO);
    FILE *damaged = fopen(file, "w");
    cr_assert(damaged && fputs("this is no database, whatever its name says", damaged) > 0);
    fclose(damaged);
    cr_expect_eq(journal_read_request(file, NULL, "1", &out, &error), STATUS_IO);
    cr_expect(strstr(error.text, "not a database"), "%s", error.text);
    buffer_free(&out);
}

Test(journal, a_reader_finds_while_the_writer_writes)
{
    const struct journal_options options = options_of();
    open_journal(&options);
    for (uint64_t id = 1; id <= 60; id++)
        put(id, id % 2 ? "queued" : "ended");
    settle();
    struct buffer out = {0};
    struct error error = {.text = ""};
    cr_assert_eq(journal_read_recent(journal_path(journal), NULL, &out, &error), STATUS_OK, "%s",
                 error.text);
    cr_expect(strstr(out.data, "{\"requests\":[{\"id\":\"000000000000003c\""), "the latest first");
    cr_expect(strstr(out.data, "\"000000000000000b\"") && !strstr(out.data, "\"000000000000000a\""),
              "fifty of them");
    buffer_clear(&out);
    cr_assert_eq(journal_read_request(journal_path(journal), NULL, "chatcmpl-000000000000000a",
                                      &out, &error),
                 STATUS_OK, "%s", error.text);
    cr_expect(strstr(out.data, "\"states\":[{\"state\":\"ended\",\"at_ms\":"), "%s", out.data);
    buffer_free(&out);
    journal_close(journal);
}

/* However its states fall into batches, a request has one row: the last state, the first time. */
Test(journal, a_request_that_comes_whole_has_its_last_state_and_all_steps)
{
    const struct journal_options options = options_of();
    open_journal(&options);
    settle();
    for (uint64_t id = 1; id <= 300; id++) {
        put(id, "tokenising");
        put(id, "queued");
        put(id, "ended");
    }
    settle();
    expect_value("SELECT count(*) FROM requests WHERE state='ended' AND outcome='stop'", "300");
    expect_value("SELECT count(*) FROM request_states", "900");
    expect_value("SELECT count(*) FROM requests WHERE accepted_ms <>"
                 " (SELECT min(at_ms) FROM request_states WHERE request=id)",
                 "0");
    journal_close(journal);
}
