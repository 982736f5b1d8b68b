#include "router/journal_tables_internal.h"

#include <stdio.h>

#include "base/log.h"

/* The bytes of schema.sql, made an array at build time. */
extern const char journal_schema[];

enum { SCHEMA_VERSION = 4 };

static int execute(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* What has been added since a version: files of all of them are taken. */
static const char *const upgrades[SCHEMA_VERSION] = {
    [1] = "ALTER TABLE requests ADD COLUMN tenant TEXT",
    [2] = "ALTER TABLE requests ADD COLUMN trace_id TEXT",
    [3] = "ALTER TABLE requests ADD COLUMN model TEXT",
};

/* A new file has version 0 and gets everything from the schema. */
static int upgrade(sqlite3 *db, const char *path)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &statement, NULL);
    int version = 0;
    if (code == SQLITE_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        version = sqlite3_column_int(statement, 0);
        code = SQLITE_OK;
    }
    sqlite3_finalize(statement);
    if (code == SQLITE_OK && (version < 0 || version > SCHEMA_VERSION)) {
        LOG_ERROR("the journal %s has schema version %d, this program writes %d", path, version,
                  SCHEMA_VERSION);
        return SQLITE_MISMATCH;
    }
    for (int from = version > 0 ? version : SCHEMA_VERSION;
         code == SQLITE_OK && from < SCHEMA_VERSION; from++) {
        char step[256];
        snprintf(step, sizeof step, "BEGIN IMMEDIATE; %s; PRAGMA user_version=%d; COMMIT",
                 upgrades[from], from + 1);
        code = execute(db, step);
    }
    return code;
}

int journal_tables_make(sqlite3 *db, const char *path)
{
    char text[64];
    int code = upgrade(db, path);
    if (code == SQLITE_OK)
        code = execute(db, journal_schema);
    snprintf(text, sizeof text, "PRAGMA user_version=%d", SCHEMA_VERSION);
    return code == SQLITE_OK ? execute(db, text) : code;
}

int journal_tables_end_orphans(sqlite3 *db, const char *router)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db,
                                  "UPDATE requests SET state='ended', outcome='lost', reason='the "
                                  "router stopped' WHERE state<>'ended' AND router<>?1",
                                  -1, &statement, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, router, -1, SQLITE_STATIC);
        code = sqlite3_step(statement) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(db);
    }
    sqlite3_finalize(statement);
    return code;
}
