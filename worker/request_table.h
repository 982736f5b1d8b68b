/* The requests a worker holds, by key: a fixed number of places, found by scanning (there are at
 * most WORKER_REQUESTS_MAX and look-ups are per request, never per token). The table knows keys and
 * places only; a node keeps its records in an array of its own, by place. Control thread. */
#ifndef BATON_WORKER_REQUEST_TABLE_H
#define BATON_WORKER_REQUEST_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "transfer/router_client.h"

struct request_key {
    struct router_ref router; /* which connection of which router asked */
    uint64_t request;
    uint16_t attempt, choice;
};

struct request_table {
    struct request_key *keys; /* [capacity] */
    bool *used;               /* [capacity] */
    uint32_t *free_places;    /* stack */
    uint32_t free_count, capacity;
};

enum { REQUEST_NONE = UINT32_MAX };

void request_table_create(struct request_table *table, uint32_t capacity);
void request_table_destroy(struct request_table *table);
/* REQUEST_NONE when it is not there. */
uint32_t request_table_find(const struct request_table *table, const struct request_key *key);
/* REQUEST_NONE when all places are taken; the key must not be there. */
uint32_t request_table_add(struct request_table *table, const struct request_key *key);
void request_table_remove(struct request_table *table, uint32_t place);
bool router_ref_equal(struct router_ref a, struct router_ref b);

#endif
