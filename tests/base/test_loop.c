#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/loop.h"

/* One of everything, so that a callback can reach what it is to destroy or count. */
struct scene {
    struct loop *loop;
    struct loop_io *io;
    struct loop_timer *timer;
    struct loop_wake *wake;
    struct loop_task *task, *other;
    struct loop_signal *signal;
    int calls, other_calls;
    unsigned events;
    uint64_t called_ns;
};

static void count_and_stop(void *arg)
{
    struct scene *scene = arg;
    scene->calls++;
    scene->called_ns = loop_now_ns(scene->loop);
    loop_stop(scene->loop);
}

static void count(void *arg)
{
    ((struct scene *)arg)->calls++;
}

Test(loop, a_stop_before_run_ends_it)
{
    struct loop *loop = loop_create();
    loop_stop(loop);
    loop_run(loop);
    loop_destroy(loop);
    loop_destroy(NULL);
}

Test(loop, timers_fire_never_early_and_in_their_order)
{
    struct scene late = {.loop = loop_create()}, early = {.loop = late.loop};
    late.timer = loop_timer_create(late.loop, count_and_stop, &late);
    early.timer = loop_timer_create(late.loop, count, &early);
    const uint64_t begin_ns = loop_now_ns(late.loop);
    loop_timer_start(late.timer, 40, 0);
    loop_timer_start(early.timer, 1, 0);
    loop_run(late.loop);
    cr_assert_geq(late.called_ns - begin_ns, 40 * (uint64_t)NS_PER_MS);
    cr_assert_eq(early.calls, 1);
    cr_assert_eq(late.calls, 1);
    loop_timer_destroy(late.timer);
    loop_timer_destroy(early.timer);
    loop_destroy(late.loop);
}

static void stop_at_three(void *arg)
{
    struct scene *scene = arg;
    if (++scene->calls == 3) {
        loop_timer_stop(scene->timer);
        loop_stop(scene->loop);
    }
}

Test(loop, a_timer_repeats_until_stopped)
{
    struct scene scene = {.loop = loop_create()};
    scene.timer = loop_timer_create(scene.loop, stop_at_three, &scene);
    const uint64_t begin_ns = loop_now_ns(scene.loop);
    loop_timer_start(scene.timer, 0, 5);
    loop_run(scene.loop);
    cr_assert_geq(loop_now_ns(scene.loop) - begin_ns, 10 * (uint64_t)NS_PER_MS);
    loop_run_once(scene.loop, 20);
    cr_assert_eq(scene.calls, 3);
    loop_timer_destroy(scene.timer);
    loop_destroy(scene.loop);
}

Test(loop, starting_a_running_timer_moves_it)
{
    struct scene scene = {.loop = loop_create()};
    scene.timer = loop_timer_create(scene.loop, count_and_stop, &scene);
    loop_timer_start(scene.timer, 3600000, 0);
    loop_timer_start(scene.timer, 0, 0);
    loop_run(scene.loop);
    cr_assert_eq(scene.calls, 1);
    loop_timer_destroy(scene.timer);
    loop_destroy(scene.loop);
}

static void on_pipe(void *arg, unsigned events)
{
    struct scene *scene = arg;
    scene->calls++;
    scene->events |= events;
}

Test(loop, descriptors_are_level_triggered_and_change_their_wants)
{
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    struct scene scene = {.loop = loop_create()};
    scene.io = loop_io_create(scene.loop, ends[0], LOOP_READ, on_pipe, &scene);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 0);
    CHECK(write(ends[1], "x", 1) == 1);
    loop_run_once(scene.loop, 0);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 2); /* not read, so it stays ready */
    cr_assert_eq(scene.events, LOOP_READ);
    loop_io_want(scene.io, 0);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 2);
    loop_io_want(scene.io, LOOP_READ);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 3);
    loop_io_destroy(scene.io);

    scene = (struct scene){.loop = scene.loop};
    scene.io = loop_io_create(scene.loop, ends[1], LOOP_WRITE, on_pipe, &scene);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.events, LOOP_WRITE);
    loop_io_destroy(scene.io);
    loop_io_destroy(NULL);
    loop_destroy(scene.loop);
    close(ends[0]);
    close(ends[1]);
}

static void *signal_from_thread(void *arg)
{
    struct scene *scene = arg;
    loop_wake_signal(scene->wake);
    return NULL;
}

Test(loop, a_wake_from_another_thread_runs_the_callback, .timeout = 60)
{
    struct scene scene = {.loop = loop_create()};
    scene.wake = loop_wake_create(scene.loop, count_and_stop, &scene);
    for (int i = 1; i <= 200; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, signal_from_thread, &scene) == 0);
        loop_run(scene.loop);
        CHECK(pthread_join(thread, NULL) == 0);
        cr_assert_eq(scene.calls, i);
    }
    loop_wake_destroy(scene.wake);
    loop_destroy(scene.loop);
}

Test(loop, several_signals_count_as_one)
{
    struct scene scene = {.loop = loop_create()};
    scene.wake = loop_wake_create(scene.loop, count, &scene);
    for (int i = 0; i < 10; i++)
        loop_wake_signal(scene.wake);
    loop_run_once(scene.loop, 0);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 1);
    loop_wake_signal(scene.wake);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 2);
    loop_wake_destroy(scene.wake);
    loop_destroy(scene.loop);
}

static void *stop_from_thread(void *arg)
{
    loop_stop(arg);
    return NULL;
}

Test(loop, stop_from_another_thread, .timeout = 60)
{
    struct loop *loop = loop_create();
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, stop_from_thread, loop) == 0);
        loop_run(loop);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    loop_destroy(loop);
}

static void schedule_self(void *arg)
{
    struct scene *scene = arg;
    scene->calls++;
    loop_task_schedule(scene->task);
}

static void count_other(void *arg)
{
    ((struct scene *)arg)->other_calls++;
}

Test(loop, a_task_scheduled_twice_runs_once)
{
    struct scene scene = {.loop = loop_create()};
    scene.task = loop_task_create(scene.loop, count, &scene);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 0);
    loop_task_schedule(scene.task);
    loop_task_schedule(scene.task);
    loop_run_once(scene.loop, 0);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 1);
    loop_task_destroy(scene.task);
    loop_destroy(scene.loop);
}

Test(loop, a_task_that_schedules_itself_runs_once_a_turn_beside_the_sockets, .timeout = 60)
{
    int ends[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    struct scene scene = {.loop = loop_create()}, reader = {.loop = scene.loop};
    scene.task = loop_task_create(scene.loop, schedule_self, &scene);
    loop_task_schedule(scene.task);
    reader.io = loop_io_create(scene.loop, ends[0], LOOP_READ, on_pipe, &reader);
    CHECK(write(ends[1], "x", 1) == 1);
    for (int i = 1; i <= 20; i++) {
        loop_run_once(scene.loop, 1000);
        cr_assert_leq(scene.calls, i);
    }
    cr_assert_geq(scene.calls, 10);
    cr_assert_geq(reader.calls, 10);
    loop_io_destroy(reader.io);
    loop_task_destroy(scene.task); /* while scheduled */
    loop_run_once(scene.loop, 0);
    loop_destroy(scene.loop);
}

static void destroy_other(void *arg)
{
    struct scene *scene = arg;
    scene->calls++;
    loop_task_destroy(scene->other);
    scene->other = NULL;
    loop_task_destroy(scene->task);
    scene->task = NULL;
}

Test(loop, a_task_may_destroy_itself_and_the_next)
{
    struct scene scene = {.loop = loop_create()};
    scene.task = loop_task_create(scene.loop, destroy_other, &scene);
    scene.other = loop_task_create(scene.loop, count_other, &scene);
    loop_task_schedule(scene.task);
    loop_task_schedule(scene.other);
    loop_run_once(scene.loop, 0);
    cr_assert_eq(scene.calls, 1);
    cr_assert_eq(scene.other_calls, 0);
    loop_destroy(scene.loop);
}

static void destroy_all(void *arg)
{
    struct scene *scene = arg;
    scene->calls++;
    loop_timer_destroy(scene->timer);
    loop_wake_destroy(scene->wake);
    loop_io_destroy(scene->io);
    loop_signal_destroy(scene->signal);
    scene->timer = NULL;
    scene->wake = NULL;
    scene->io = NULL;
    scene->signal = NULL;
    loop_stop(scene->loop);
}

static void destroy_all_io(void *arg, unsigned events)
{
    (void)events;
    destroy_all(arg);
}

/* Whichever is called first destroys them all, itself included; the others are not called. */
Test(loop, callbacks_may_destroy_everything)
{
    for (int which = 0; which < 4; which++) {
        int ends[2];
        CHECK(pipe2(ends, O_NONBLOCK) == 0);
        struct scene scene = {.loop = loop_create()};
        scene.timer = loop_timer_create(scene.loop, destroy_all, &scene);
        scene.wake = loop_wake_create(scene.loop, destroy_all, &scene);
        scene.io = loop_io_create(scene.loop, ends[0], LOOP_READ, destroy_all_io, &scene);
        scene.signal = loop_signal_create(scene.loop, SIGUSR1, destroy_all, &scene);
        if (which == 0)
            loop_timer_start(scene.timer, 0, 1);
        else if (which == 1)
            loop_wake_signal(scene.wake);
        else if (which == 2)
            CHECK(write(ends[1], "x", 1) == 1);
        else
            CHECK(raise(SIGUSR1) == 0);
        loop_run(scene.loop);
        cr_assert_eq(scene.calls, 1);
        loop_destroy(scene.loop);
        close(ends[0]);
        close(ends[1]);
    }
}

Test(loop, signals_arrive_on_the_loop)
{
    struct scene scene = {.loop = loop_create()};
    scene.signal = loop_signal_create(scene.loop, SIGTERM, count_and_stop, &scene);
    CHECK(raise(SIGTERM) == 0);
    loop_run(scene.loop);
    cr_assert_eq(scene.calls, 1);
    loop_signal_destroy(scene.signal);
    loop_destroy(scene.loop);
}

Test(loop, a_broken_pipe_is_an_error_and_not_a_death)
{
    struct loop *loop = loop_create();
    int ends[2];
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    cr_assert_eq(write(ends[1], "x", 1), -1);
    close(ends[1]);
    loop_destroy(loop);
}

Test(loop, run_once_gives_up_after_its_time)
{
    struct loop *loop = loop_create();
    const uint64_t begin_ns = loop_now_ns(loop);
    loop_run_once(loop, 15);
    cr_assert_geq(loop_now_ns(loop) - begin_ns, 15 * (uint64_t)NS_PER_MS);
    loop_destroy(loop);
}

Test(loop, destroying_a_loop_before_its_objects_is_a_fault, .signal = SIGABRT)
{
    struct scene scene = {.loop = loop_create()};
    scene.timer = loop_timer_create(scene.loop, count, &scene);
    loop_destroy(scene.loop);
}

static void *touch_timer(void *arg)
{
    struct scene *scene = arg;
    loop_timer_start(scene->timer, 1, 0);
    return NULL;
}

static void touch_from_outside(void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, touch_timer, arg) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

Test(loop, another_thread_must_not_touch_a_running_loop, .signal = SIGABRT)
{
    struct scene scene = {.loop = loop_create()};
    scene.timer = loop_timer_create(scene.loop, touch_from_outside, &scene);
    loop_timer_start(scene.timer, 0, 0);
    loop_run_once(scene.loop, 1000);
}
