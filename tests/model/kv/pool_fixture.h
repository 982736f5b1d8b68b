/* The pool of pages that the tests of a file share: on a plain backend, gone when they end. */
#ifndef BATON_TESTS_MODEL_KV_POOL_FIXTURE_H
#define BATON_TESTS_MODEL_KV_POOL_FIXTURE_H

#include "model/kv/page_pool.h"

extern struct backend *backend;
extern struct page_pool *pool;

/* Of so many slots; asserts that it worked. */
void pool_fixture_open(const struct kv_layout *layout, uint32_t slots);
/* Checks, as the pool does, that every slot is free. */
void pool_fixture_close(void);

#endif
