/* Which thread may call a function: claimed once, asserted in debug builds ever after. */
#ifndef BATON_WORKER_THREAD_OWNER_H
#define BATON_WORKER_THREAD_OWNER_H

#include <pthread.h>

#include "base/check.h"

struct thread_owner {
    pthread_t thread;
};

static inline void thread_owner_claim(struct thread_owner *owner)
{
    owner->thread = pthread_self();
}

static inline void thread_owner_check(const struct thread_owner *owner)
{
    DCHECK(pthread_equal(owner->thread, pthread_self()));
    (void)owner;
}

#endif
