#include "base/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

TAILQ_HEAD(task_queue, loop_task);

struct loop {
    struct event_base *base;
    struct loop_wake *stop_wake;
    struct event *task_event; /* active while `tasks` has any */
    struct event *turn_timer; /* bounds loop_run_once */
    struct task_queue tasks;
    bool running_tasks;
    uint32_t object_count; /* what the user has created and not destroyed */
    atomic_bool stop;
    atomic_bool owned; /* a thread is inside loop_run, namely `owner` */
    pthread_t owner;
};

struct loop_io {
    struct loop *loop;
    struct event *event;
    int fd;
    unsigned events;
    loop_io_callback callback;
    void *arg;
};

struct loop_timer {
    struct loop *loop;
    struct event *event;
    uint64_t due_ns, repeat_ns;
    loop_callback callback;
    void *arg;
};

struct loop_wake {
    struct loop_io *io;
    int fd;
    atomic_bool rung;
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

struct loop_signal {
    struct loop *loop;
    struct event *event;
    loop_callback callback;
    void *arg;
};

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    CHECK(memory != NULL);
    return memory;
}

static void check_owner(const struct loop *loop)
{
    CHECK(!atomic_load_explicit(&loop->owned, memory_order_relaxed) ||
          pthread_equal(loop->owner, pthread_self()));
}

/* ---- the loop ---- */

static void on_stop(void *arg)
{
    struct loop *loop = arg;
    if (atomic_load(&loop->stop))
        CHECK(event_base_loopbreak(loop->base) == 0);
}

static void on_turn_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg; /* that something happened ends the turn */
}

/* Runs the tasks scheduled so far; what they schedule waits for the next turn, so that a task that
 * schedules itself does not shut out the sockets. */
static void on_tasks(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop *loop = arg;
    struct loop_task end = {0};
    TAILQ_INSERT_TAIL(&loop->tasks, &end, entry);
    loop->running_tasks = true;
    struct loop_task *task;
    while ((task = TAILQ_FIRST(&loop->tasks)) != &end) {
        TAILQ_REMOVE(&loop->tasks, task, entry);
        task->scheduled = false;
        task->callback(task->arg);
    }
    TAILQ_REMOVE(&loop->tasks, &end, entry);
    loop->running_tasks = false;
    if (!TAILQ_EMPTY(&loop->tasks))
        CHECK(evtimer_add(loop->task_event, &(struct timeval){0}) == 0);
}

bool loop_has_tasks(const struct loop *loop)
{
    /* While tasks run the last entry marks the end of their turn; what follows it is new. */
    const struct loop_task *last = TAILQ_LAST(&loop->tasks, task_queue);
    return last != NULL && last->loop != NULL;
}

struct loop *loop_create(void)
{
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    struct loop *loop = allocate(sizeof *loop);
    struct event_config *config = event_config_new();
    CHECK(config != NULL);
    CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER) == 0);
    /* A timer started at the end of a long callback counts from now, not from its beginning. */
    CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NO_CACHE_TIME) == 0);
    loop->base = event_base_new_with_config(config);
    event_config_free(config);
    CHECK(loop->base != NULL);
    TAILQ_INIT(&loop->tasks);
    loop->task_event = evtimer_new(loop->base, on_tasks, loop);
    loop->turn_timer = evtimer_new(loop->base, on_turn_over, loop);
    CHECK(loop->task_event && loop->turn_timer);
    loop->stop_wake = loop_wake_create(loop, on_stop, loop);
    loop->object_count = 0;
    return loop;
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    check_owner(loop);
    CHECK(loop->object_count == 0);
    loop->object_count = 1; /* stop_wake, not counted until here */
    loop_wake_destroy(loop->stop_wake);
    event_free(loop->task_event);
    event_free(loop->turn_timer);
    event_base_free(loop->base);
    free(loop);
}

static void turn(struct loop *loop, int flags)
{
    CHECK(!atomic_load(&loop->owned));
    loop->owner = pthread_self();
    atomic_store(&loop->owned, true);
    CHECK(event_base_loop(loop->base, flags) >= 0);
    atomic_store(&loop->owned, false);
}

void loop_run(struct loop *loop)
{
    while (!atomic_load(&loop->stop))
        turn(loop, EVLOOP_NO_EXIT_ON_EMPTY);
    atomic_store(&loop->stop, false);
}

void loop_run_once(struct loop *loop, uint32_t timeout_ms)
{
    if (timeout_ms == 0) {
        turn(loop, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        return;
    }
    const struct timeval timeout = {.tv_sec = timeout_ms / 1000,
                                    .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000};
    CHECK(evtimer_add(loop->turn_timer, &timeout) == 0);
    turn(loop, EVLOOP_ONCE);
    CHECK(evtimer_del(loop->turn_timer) == 0);
}

void loop_stop(struct loop *loop)
{
    atomic_store(&loop->stop, true);
    loop_wake_signal(loop->stop_wake);
}

uint64_t loop_now_ns(const struct loop *loop)
{
    (void)loop;
    return clock_now_ns(clock_monotonic());
}

void *loop_event_base(struct loop *loop)
{
    return loop->base;
}

/* ---- descriptors ---- */

static void on_io(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    struct loop_io *io = arg;
    const unsigned ready =
        (what & EV_READ ? (unsigned)LOOP_READ : 0u) | (what & EV_WRITE ? (unsigned)LOOP_WRITE : 0u);
    io->callback(io->arg, ready & io->events); /* may have destroyed io */
}

static void io_arm(struct loop_io *io)
{
    if (io->events == 0)
        return;
    const int what = EV_PERSIST | (io->events & LOOP_READ ? EV_READ : 0) |
                     (io->events & LOOP_WRITE ? EV_WRITE : 0);
    CHECK(event_assign(io->event, io->loop->base, io->fd, (short)what, on_io, io) == 0);
    CHECK(event_add(io->event, NULL) == 0);
}

struct loop_io *loop_io_create(struct loop *loop, int fd, unsigned events,
                               loop_io_callback callback, void *arg)
{
    check_owner(loop);
    CHECK(fd >= 0 && (events & ~(unsigned)(LOOP_READ | LOOP_WRITE)) == 0);
    struct loop_io *io = allocate(sizeof *io);
    *io = (struct loop_io){
        .loop = loop, .fd = fd, .events = events, .callback = callback, .arg = arg};
    io->event = event_new(loop->base, fd, EV_READ | EV_PERSIST, on_io, io);
    CHECK(io->event != NULL);
    io_arm(io);
    loop->object_count++;
    return io;
}

void loop_io_want(struct loop_io *io, unsigned events)
{
    check_owner(io->loop);
    CHECK((events & ~(unsigned)(LOOP_READ | LOOP_WRITE)) == 0);
    if (io->events == events)
        return;
    CHECK(event_del(io->event) == 0);
    io->events = events;
    io_arm(io);
}

void loop_io_destroy(struct loop_io *io)
{
    if (!io)
        return;
    check_owner(io->loop);
    io->loop->object_count--;
    event_free(io->event);
    free(io);
}

/* ---- timers ---- */

static void timer_arm(struct loop_timer *timer, uint64_t now_ns)
{
    const uint64_t left_ns = timer->due_ns > now_ns ? timer->due_ns - now_ns : 0;
    const uint64_t left_us = (left_ns + NS_PER_US - 1) / NS_PER_US; /* never early */
    const struct timeval timeout = {.tv_sec = (time_t)(left_us / 1000000),
                                    .tv_usec = (suseconds_t)(left_us % 1000000)};
    CHECK(evtimer_add(timer->event, &timeout) == 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop_timer *timer = arg;
    if (timer->repeat_ns > 0) {
        /* The beats stay where they were; those that were missed are left out. */
        const uint64_t now_ns = loop_now_ns(timer->loop);
        timer->due_ns += timer->repeat_ns;
        if (timer->due_ns <= now_ns)
            timer->due_ns += ((now_ns - timer->due_ns) / timer->repeat_ns + 1) * timer->repeat_ns;
        timer_arm(timer, now_ns);
    }
    timer->callback(timer->arg); /* may have destroyed timer */
}

struct loop_timer *loop_timer_create(struct loop *loop, loop_callback callback, void *arg)
{
    check_owner(loop);
    struct loop_timer *timer = allocate(sizeof *timer);
    *timer = (struct loop_timer){.loop = loop, .callback = callback, .arg = arg};
    timer->event = evtimer_new(loop->base, on_timer, timer);
    CHECK(timer->event != NULL);
    loop->object_count++;
    return timer;
}

void loop_timer_start(struct loop_timer *timer, uint32_t after_ms, uint32_t repeat_ms)
{
    check_owner(timer->loop);
    const uint64_t now_ns = loop_now_ns(timer->loop);
    timer->due_ns = now_ns + (uint64_t)after_ms * NS_PER_MS;
    timer->repeat_ns = (uint64_t)repeat_ms * NS_PER_MS;
    CHECK(evtimer_del(timer->event) == 0);
    timer_arm(timer, now_ns);
}

void loop_timer_stop(struct loop_timer *timer)
{
    check_owner(timer->loop);
    CHECK(evtimer_del(timer->event) == 0);
}

void loop_timer_destroy(struct loop_timer *timer)
{
    if (!timer)
        return;
    check_owner(timer->loop);
    timer->loop->object_count--;
    event_free(timer->event);
    free(timer);
}

/* ---- wake-ups from other threads ---- */

static void on_wake(void *arg, unsigned events)
{
    (void)events;
    struct loop_wake *wake = arg;
    uint64_t count;
    while (read(wake->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    /* From here on a signal writes again. One that came before is served by this callback: the
     * exchange reads what it wrote, and so sees the work it announced. */
    if (atomic_exchange(&wake->rung, false))
        wake->callback(wake->arg); /* may have destroyed wake */
}

struct loop_wake *loop_wake_create(struct loop *loop, loop_callback callback, void *arg)
{
    struct loop_wake *wake = allocate(sizeof *wake);
    *wake = (struct loop_wake){.callback = callback, .arg = arg};
    wake->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(wake->fd >= 0);
    wake->io = loop_io_create(loop, wake->fd, LOOP_READ, on_wake, wake);
    return wake;
}

void loop_wake_signal(struct loop_wake *wake)
{
    if (atomic_exchange(&wake->rung, true))
        return;
    const uint64_t one = 1;
    ssize_t written;
    do {
        written = write(wake->fd, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
    CHECK(written == sizeof one);
}

void loop_wake_destroy(struct loop_wake *wake)
{
    if (!wake)
        return;
    loop_io_destroy(wake->io);
    close(wake->fd);
    free(wake);
}

/* ---- tasks ---- */

struct loop_task *loop_task_create(struct loop *loop, loop_callback callback, void *arg)
{
    check_owner(loop);
    struct loop_task *task = allocate(sizeof *task);
    *task = (struct loop_task){.loop = loop, .callback = callback, .arg = arg};
    loop->object_count++;
    return task;
}

void loop_task_schedule(struct loop_task *task)
{
    struct loop *loop = task->loop;
    check_owner(loop);
    if (task->scheduled)
        return;
    task->scheduled = true;
    const bool first = TAILQ_EMPTY(&loop->tasks);
    TAILQ_INSERT_TAIL(&loop->tasks, task, entry);
    if (first && !loop->running_tasks)
        event_active(loop->task_event, EV_TIMEOUT, 0);
}

void loop_task_destroy(struct loop_task *task)
{
    if (!task)
        return;
    check_owner(task->loop);
    if (task->scheduled)
        TAILQ_REMOVE(&task->loop->tasks, task, entry);
    task->loop->object_count--;
    free(task);
}

/* ---- signals ---- */

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    (void)number, (void)what;
    struct loop_signal *watch = arg;
    watch->callback(watch->arg); /* may have destroyed watch */
}

struct loop_signal *loop_signal_create(struct loop *loop, int signal_number, loop_callback callback,
                                       void *arg)
{
    check_owner(loop);
    struct loop_signal *watch = allocate(sizeof *watch);
    *watch = (struct loop_signal){.loop = loop, .callback = callback, .arg = arg};
    watch->event = evsignal_new(loop->base, signal_number, on_signal, watch);
    CHECK(watch->event != NULL && event_add(watch->event, NULL) == 0);
    loop->object_count++;
    return watch;
}

void loop_signal_destroy(struct loop_signal *signal)
{
    if (!signal)
        return;
    check_owner(signal->loop);
    signal->loop->object_count--;
    event_free(signal->event);
    free(signal);
}
