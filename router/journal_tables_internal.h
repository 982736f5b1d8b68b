/* The journal's tables, in files of every version so far. The writer's thread; results are codes of
 * SQLite. */
#ifndef BATON_ROUTER_JOURNAL_TABLES_INTERNAL_H
#define BATON_ROUTER_JOURNAL_TABLES_INTERNAL_H

#include <sqlite3.h>

/* Makes the tables in a new file, and what is missing in an older one. MISMATCH for a file of a
 * later version, which the log tells by its path. */
int journal_tables_make(sqlite3 *db, const char *path);
/* What an earlier life of the router left open will not be finished by anyone: it is lost. */
int journal_tables_end_orphans(sqlite3 *db, const char *router);

#endif
