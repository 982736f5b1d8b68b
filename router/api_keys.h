/* Who may use the API, how much, and under which name: keys from a file.
 *
 * A line is a key, the tenant's name, whether it may look at what everybody does, and what it may
 * have in a minute:
 *
 *   sk-0123456789abcdef  acme  requests=600  tokens=120000
 *   sk-fedcba9876543210  us    operator
 *
 * A limit is a bucket that fills evenly over the minute and holds a minute's worth. Tokens are
 * charged after the fact, a prompt's when it is placed and an answer's at its end: the bucket may
 * then owe, and a request waits until it does not. Keys themselves are not kept, only their
 * digests. Loop thread. */
#ifndef BATON_ROUTER_API_KEYS_H
#define BATON_ROUTER_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    API_KEYS_MAX = 1024,
    API_KEY_BYTES_MIN = 16,
    API_KEY_BYTES_MAX = 256,
    API_TENANT_BYTES = 65, /* with its end */
};
#define API_PER_MINUTE_MAX 1000000000

struct api_keys;
struct api_key; /* lives as long as the keys */

/* INVALID with file, line and what is wrong there; IO when it can not be read. A file that others
 * than its owner may use is taken, with a warning. */
enum status api_keys_load(const char *path, struct api_keys **out, struct error *error);
void api_keys_destroy(struct api_keys *keys); /* NULL is fine */
uint32_t api_keys_count(const struct api_keys *keys);

/* NULL when there is no such key. Takes the same time whichever it is. */
struct api_key *api_keys_find(const struct api_keys *keys, const char *presented);
const char *api_key_tenant(const struct api_key *key);
bool api_key_is_operator(const struct api_key *key);

enum api_limit { API_WITHIN, API_OVER_REQUESTS, API_OVER_TOKENS };
/* Takes one request from its bucket, or says which limit is met and after how many seconds (at
 * least 1) it no longer is. */
enum api_limit api_key_admit(struct api_key *key, uint64_t now_ns, uint32_t *retry_s_out);
void api_key_charge(struct api_key *key, uint64_t tokens, uint64_t now_ns);
/* What it may have in a minute; 0: no limit. */
uint64_t api_key_limit(const struct api_key *key, enum api_limit which);

#endif
