#include "router/journal_read.h"

#include <string.h>

#include <sqlite3.h>

#include "base/check.h"
#include "base/json.h"

enum { STATES_MAX = 200 }; /* of one request */

/* What shows nodes and their addresses is not for one tenant, which is ?3. */
#define REQUEST_COLUMNS                                                                            \
    "SELECT id, client_id, endpoint, accepted_ms, state,"                                          \
    " CASE WHEN ?3 IS NULL THEN prefill END AS prefill,"                                           \
    " CASE WHEN ?3 IS NULL THEN decode END AS decode,"                                             \
    " prompt_tokens, max_tokens, output_tokens, first_token_us, duration_us, http_status, "        \
    "outcome,"                                                                                     \
    " CASE WHEN ?3 IS NULL THEN reason END AS reason, tenant, trace_id, model"                     \
    " FROM requests WHERE (?3 IS NULL OR tenant=?3) "

/* A row as members of the object that is open. */
static void put_columns(struct json_writer *writer, sqlite3_stmt *statement)
{
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        json_key(writer, sqlite3_column_name(statement, i));
        if (sqlite3_column_type(statement, i) == SQLITE_INTEGER)
            json_put_int(writer, sqlite3_column_int64(statement, i));
        else
            json_put_text(writer, (const char *)sqlite3_column_text(statement, i));
    }
}

/* ?1 is the most rows, ?2 the text if the statement has one. */
static int prepare(sqlite3 *db, const char *sql, int rows_max, const char *text, sqlite3_stmt **out)
{
    const int code = sqlite3_prepare_v2(db, sql, -1, out, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite3_bind_int(*out, 1, rows_max);
    return text ? sqlite3_bind_text(*out, 2, text, -1, SQLITE_TRANSIENT) : SQLITE_OK;
}

/* What is asked for. */
struct look {
    const char *tenant; /* ?3; NULL: all */
    const char *id;     /* NULL: the latest */
};

/* An array of a request's states under the key "states". */
static int put_states(sqlite3 *db, const char *id, struct json_writer *writer)
{
    sqlite3_stmt *statement = NULL;
    int code = prepare(db,
                       "SELECT state, at_ms FROM request_states WHERE request=?2"
                       " ORDER BY rowid LIMIT ?1",
                       STATES_MAX, id, &statement);
    json_key(writer, "states");
    json_open_array(writer);
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        json_open_object(writer);
        put_columns(writer, statement);
        json_close_object(writer);
        code = SQLITE_OK;
    }
    json_close_array(writer);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int put_requests(sqlite3 *db, const char *sql, const struct look *look,
                        struct json_writer *writer, uint32_t *count_out)
{
    sqlite3_stmt *statement = NULL;
    const char *id = look->id;
    int code = prepare(db, sql, id ? JOURNAL_READ_FOUND : JOURNAL_READ_RECENT, id, &statement);
    if (code == SQLITE_OK && look->tenant)
        code = sqlite3_bind_text(statement, 3, look->tenant, -1, SQLITE_TRANSIENT);
    while (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        json_open_object(writer);
        put_columns(writer, statement);
        code = SQLITE_OK;
        if (id)
            code = put_states(db, (const char *)sqlite3_column_text(statement, 0), writer);
        json_close_object(writer);
        ++*count_out;
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* The id as the journal has it: without what answers put before it. */
static const char *bare(const char *id)
{
    static const char *const prefixes[] = {"chatcmpl-", "cmpl-"};
    for (size_t i = 0; i < ARRAY_COUNT(prefixes); i++) {
        const size_t bytes = strlen(prefixes[i]);
        if (strncmp(id, prefixes[i], bytes) == 0)
            return id + bytes;
    }
    return id;
}

/* Ours are unique and found at once; a client's is searched for in all rows. */
static int put_found(sqlite3 *db, const struct look *look, struct json_writer *writer)
{
    uint32_t count = 0;
    const struct look ours = {look->tenant, bare(look->id)};
    int code = put_requests(db, REQUEST_COLUMNS "AND id=?2 LIMIT ?1", &ours, writer, &count);
    if (code == SQLITE_OK && count == 0)
        code = put_requests(db, REQUEST_COLUMNS "AND client_id=?2 ORDER BY number DESC LIMIT ?1",
                            look, writer, &count);
    return code;
}

static enum status read_file(const char *path, const struct look *look, struct buffer *out,
                             struct error *error)
{
    sqlite3 *db = NULL;
    uint32_t count = 0;
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    json_key(&writer, "requests");
    json_open_array(&writer);
    /* Read-only would not do: a reader shares the write-ahead log's index. */
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK) {
        sqlite3_busy_timeout(db, JOURNAL_READ_BUSY_MS);
        code = sqlite3_exec(db, "PRAGMA query_only=1", NULL, NULL, NULL);
    }
    if (code == SQLITE_OK)
        code = look->id ? put_found(db, look, &writer)
                        : put_requests(db, REQUEST_COLUMNS "ORDER BY number DESC LIMIT ?1", look,
                                       &writer, &count);
    json_close_array(&writer);
    json_close_object(&writer);
    if (code != SQLITE_OK)
        error_set(error, STATUS_IO, "The journal can not be read: %s.",
                  db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
    sqlite3_close(db);
    return code == SQLITE_OK ? STATUS_OK : STATUS_IO;
}

enum status journal_read_recent(const char *path, const char *tenant, struct buffer *out,
                                struct error *error)
{
    return read_file(path, &(struct look){tenant, NULL}, out, error);
}

enum status journal_read_request(const char *path, const char *tenant, const char *id,
                                 struct buffer *out, struct error *error)
{
    return read_file(path, &(struct look){tenant, id}, out, error);
}
