#include "tests/sim/sim_loop.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "base/check.h"
#include "base/clock.h"

enum { ROUNDS_MAX = 100000 }; /* of tasks that schedule each other at one moment */

struct loop_timer {
    LIST_ENTRY(loop_timer) entry;
    uint64_t due_ns, repeat_ns; /* due 0: stopped */
    loop_callback callback;
    void *arg;
};

struct loop_task {
    TAILQ_ENTRY(loop_task) entry;
    struct loop *loop;
    bool scheduled;
    loop_callback callback;
    void *arg;
};

struct loop {
    LIST_HEAD(, loop_timer) timers;
    TAILQ_HEAD(, loop_task) tasks;
};

uint64_t sim_now_ns;

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    CHECK(memory != NULL);
    return memory;
}

struct loop *loop_create(void)
{
    struct loop *loop = allocate(sizeof *loop);
    LIST_INIT(&loop->timers);
    TAILQ_INIT(&loop->tasks);
    return loop;
}

void loop_destroy(struct loop *loop)
{
    CHECK(LIST_EMPTY(&loop->timers) && TAILQ_EMPTY(&loop->tasks));
    free(loop);
}

uint64_t loop_now_ns(const struct loop *loop)
{
    (void)loop;
    return sim_now_ns;
}

uint64_t sim_loop_next_ns(const struct loop *loop)
{
    uint64_t next_ns = UINT64_MAX;
    const struct loop_timer *timer;
    LIST_FOREACH(timer, &loop->timers, entry)
    if (timer->due_ns != 0 && timer->due_ns < next_ns)
        next_ns = timer->due_ns;
    return next_ns;
}

static struct loop_timer *due_timer(struct loop *loop)
{
    struct loop_timer *timer;
    LIST_FOREACH(timer, &loop->timers, entry)
    if (timer->due_ns != 0 && timer->due_ns <= sim_now_ns)
        return timer;
    return NULL;
}

void sim_loop_run(struct loop *loop)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        struct loop_task *task = TAILQ_FIRST(&loop->tasks);
        struct loop_timer *timer = task ? NULL : due_timer(loop);
        if (!task && !timer)
            return;
        if (task) {
            TAILQ_REMOVE(&loop->tasks, task, entry);
            task->scheduled = false;
            task->callback(task->arg);
            continue;
        }
        timer->due_ns = timer->repeat_ns == 0 ? 0 : sim_now_ns + timer->repeat_ns;
        timer->callback(timer->arg);
    }
    CHECK(!"the loop's tasks never come to an end");
}

struct loop_timer *loop_timer_create(struct loop *loop, loop_callback callback, void *arg)
{
    struct loop_timer *timer = allocate(sizeof *timer);
    timer->callback = callback;
    timer->arg = arg;
    LIST_INSERT_HEAD(&loop->timers, timer, entry);
    return timer;
}

void loop_timer_start(struct loop_timer *timer, uint32_t after_ms, uint32_t repeat_ms)
{
    timer->due_ns = sim_now_ns + (uint64_t)after_ms * NS_PER_MS;
    timer->repeat_ns = (uint64_t)repeat_ms * NS_PER_MS;
}

void loop_timer_stop(struct loop_timer *timer)
{
    timer->due_ns = 0;
}

void loop_timer_destroy(struct loop_timer *timer)
{
    if (!timer)
        return;
    LIST_REMOVE(timer, entry);
    free(timer);
}

struct loop_task *loop_task_create(struct loop *loop, loop_callback callback, void *arg)
{
    struct loop_task *task = allocate(sizeof *task);
    *task = (struct loop_task){.loop = loop, .callback = callback, .arg = arg};
    return task;
}

void loop_task_schedule(struct loop_task *task)
{
    if (task->scheduled)
        return;
    task->scheduled = true;
    TAILQ_INSERT_TAIL(&task->loop->tasks, task, entry);
}

void loop_task_destroy(struct loop_task *task)
{
    if (!task)
        return;
    if (task->scheduled)
        TAILQ_REMOVE(&task->loop->tasks, task, entry);
    free(task);
}

bool loop_has_tasks(const struct loop *loop)
{
    return !TAILQ_EMPTY(&loop->tasks);
}

/* ---- what a simulated node has no use for ---- */

struct loop_io *loop_io_create(struct loop *loop, int fd, unsigned events,
                               loop_io_callback callback, void *arg)
{
    (void)loop, (void)fd, (void)events, (void)callback, (void)arg;
    CHECK(!"a simulated node has no descriptors");
    return NULL;
}

void loop_io_want(struct loop_io *io, unsigned events)
{
    (void)io, (void)events;
    CHECK(!"a simulated node has no descriptors");
}

void loop_io_destroy(struct loop_io *io)
{
    CHECK(io == NULL);
}

struct loop_wake *loop_wake_create(struct loop *loop, loop_callback callback, void *arg)
{
    (void)loop, (void)callback, (void)arg;
    CHECK(!"a simulated node has no threads");
    return NULL;
}

void loop_wake_signal(struct loop_wake *wake)
{
    (void)wake;
    CHECK(!"a simulated node has no threads");
}

void loop_wake_destroy(struct loop_wake *wake)
{
    CHECK(wake == NULL);
}
