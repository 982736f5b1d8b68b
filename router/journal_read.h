/* Reading the journal while it is being written: each call opens the file for itself and closes it
 * again, so that it may be moved aside at any time. Any thread but the loop's: it may wait for the
 * disk, and for a lock as long as JOURNAL_READ_BUSY_MS. */
#ifndef BATON_ROUTER_JOURNAL_READ_H
#define BATON_ROUTER_JOURNAL_READ_H

#include "base/bytes.h"
#include "base/status.h"

enum { JOURNAL_READ_BUSY_MS = 250, JOURNAL_READ_RECENT = 50, JOURNAL_READ_FOUND = 20 };

/* Appends {"requests":[...]}, the latest first, at most JOURNAL_READ_RECENT of them. tenant: whose,
 * without the names of nodes and what nodes said; NULL for all of all. On failure (IO, with the
 * cause) nothing is to be made of what was appended. */
enum status journal_read_recent(const char *path, const char *tenant, struct buffer *out,
                                struct error *error);
/* The same of the requests with that id, be it ours ("chatcmpl-" and "cmpl-" before it are fine) or
 * the one the client gave, each with its changes of state; at most JOURNAL_READ_FOUND. */
enum status journal_read_request(const char *path, const char *tenant, const char *id,
                                 struct buffer *out, struct error *error);

#endif
