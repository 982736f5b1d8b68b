#include "router/text_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

struct job_list {
    struct text_job *first, **last;
};

struct text_pool {
    struct loop_wake *wake;
    pthread_t *threads;
    uint32_t thread_count, jobs_max;
    size_t bytes_max;

    pthread_mutex_t lock; /* guards what follows; held for a few instructions only */
    pthread_cond_t work;
    struct job_list waiting, finished;
    uint32_t jobs; /* handed in, not yet given back */
    size_t bytes;
    bool stopping;
};

static void list_init(struct job_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void list_add(struct job_list *list, struct text_job *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static struct text_job *list_take(struct job_list *list)
{
    struct text_job *job = list->first;
    if (job && !(list->first = job->next))
        list->last = &list->first;
    return job;
}

static void *thread_main(void *arg)
{
    struct text_pool *pool = arg;
    CHECK(pthread_mutex_lock(&pool->lock) == 0);
    for (;;) {
        struct text_job *job = list_take(&pool->waiting);
        if (!job && pool->stopping)
            break;
        if (!job) {
            pthread_cond_wait(&pool->work, &pool->lock);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        job->run(job);
        pthread_mutex_lock(&pool->lock);
        list_add(&pool->finished, job);
        loop_wake_signal(pool->wake);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void give_back(void *arg)
{
    struct text_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    struct job_list finished = pool->finished;
    list_init(&pool->finished);
    for (const struct text_job *job = finished.first; job; job = job->next) {
        pool->jobs--;
        pool->bytes -= job->bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    struct text_job *next;
    for (struct text_job *job = finished.first; job; job = next) {
        next = job->next;
        job->done(job);
    }
}

struct text_pool *text_pool_create(struct loop *loop, uint32_t thread_count, uint32_t jobs_max,
                                   size_t bytes_max)
{
    struct text_pool *pool = calloc(1, sizeof *pool);
    CHECK(pool != NULL && thread_count > 0);
    pool->thread_count = thread_count;
    pool->jobs_max = jobs_max;
    pool->bytes_max = bytes_max;
    list_init(&pool->waiting);
    list_init(&pool->finished);
    CHECK(pthread_mutex_init(&pool->lock, NULL) == 0 && pthread_cond_init(&pool->work, NULL) == 0);
    pool->wake = loop_wake_create(loop, give_back, pool);
    pool->threads = calloc(thread_count, sizeof *pool->threads);
    CHECK(pool->threads != NULL);
    for (uint32_t i = 0; i < thread_count; i++)
        CHECK(pthread_create(&pool->threads[i], NULL, thread_main, pool) == 0);
    return pool;
}

enum status text_pool_submit(struct text_pool *pool, struct text_job *job)
{
    pthread_mutex_lock(&pool->lock);
    const bool room = pool->jobs < pool->jobs_max && job->bytes <= pool->bytes_max - pool->bytes;
    if (room) {
        pool->jobs++;
        pool->bytes += job->bytes;
        list_add(&pool->waiting, job);
        pthread_cond_signal(&pool->work);
    }
    pthread_mutex_unlock(&pool->lock);
    return room ? STATUS_OK : STATUS_BUSY;
}

void text_pool_destroy(struct text_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    give_back(pool);
    loop_wake_destroy(pool->wake);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool->threads);
    free(pool);
}
