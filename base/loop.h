/* The event loop of a thread (libevent inside, named nowhere else but the router's HTTP file).
 *
 * Everything here belongs to the thread that runs the loop, except loop_stop and loop_wake_signal,
 * which any thread may call. Callbacks may destroy the object they were called for. */
#ifndef BATON_BASE_LOOP_H
#define BATON_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop_io;
struct loop_timer;
struct loop_wake;
struct loop_task;
struct loop_signal;

typedef void (*loop_callback)(void *arg);
typedef void (*loop_io_callback)(void *arg, unsigned events);

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

struct loop *loop_create(void); /* aborts on failure (start-up only) */
void loop_destroy(struct loop *loop);
/* Runs until loop_stop. */
void loop_run(struct loop *loop);
/* Runs what is ready, waiting at most timeout_ms for something; for tests. */
void loop_run_once(struct loop *loop, uint32_t timeout_ms);
void loop_stop(struct loop *loop);
uint64_t loop_now_ns(const struct loop *loop); /* CLOCK_MONOTONIC, read now */
/* The libevent base, for router/http_server.c only. */
void *loop_event_base(struct loop *loop);

/* Watches fd (not owned), level-triggered, for LOOP_READ | LOOP_WRITE. */
struct loop_io *loop_io_create(struct loop *loop, int fd, unsigned events,
                               loop_io_callback callback, void *arg);
void loop_io_want(struct loop_io *io, unsigned events);
void loop_io_destroy(struct loop_io *io); /* NULL is fine, here and below */

struct loop_timer *loop_timer_create(struct loop *loop, loop_callback callback, void *arg);
/* Fires after after_ms, then every repeat_ms (0: once). Restarts a running timer. */
void loop_timer_start(struct loop_timer *timer, uint32_t after_ms, uint32_t repeat_ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_destroy(struct loop_timer *timer);

/* A doorbell from other threads; several signals before the callback runs count as one. */
struct loop_wake *loop_wake_create(struct loop *loop, loop_callback callback, void *arg);
void loop_wake_signal(struct loop_wake *wake);
void loop_wake_destroy(struct loop_wake *wake);

/* Work put off to the end of this turn of the loop; scheduling twice runs it once. */
struct loop_task *loop_task_create(struct loop *loop, loop_callback callback, void *arg);
void loop_task_schedule(struct loop_task *task);
void loop_task_destroy(struct loop_task *task);
/* Is any task scheduled? Whoever spins in a callback gives way to it. */
bool loop_has_tasks(const struct loop *loop);

struct loop_signal *loop_signal_create(struct loop *loop, int signal_number, loop_callback callback,
                                       void *arg);
void loop_signal_destroy(struct loop_signal *signal);

#endif
