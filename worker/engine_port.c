#include "worker/engine_port.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/ring.h"

/* Upper bounds of one sleep; a doorbell ends it at once. */
enum { SLEEP_MS = 1000, ROOM_SLEEP_MS = 10 };

struct engine_port {
    struct ring *commands, *events;
    struct loop_wake *wake;
    struct engine_port_sizes sizes;
    atomic_bool stopping;
    bool started;
    pthread_t thread;
    struct thread_owner control, engine;
    void (*run)(void *arg);
    void *run_arg;
};

struct engine_port *engine_port_create(struct loop *loop, const struct engine_port_sizes *sizes,
                                       loop_callback on_events, void *arg)
{
    struct engine_port *port = calloc(1, sizeof *port);
    CHECK(port != NULL);
    port->sizes = *sizes;
    port->commands = ring_create(sizes->command_bytes, sizes->command_count);
    port->events = ring_create(sizes->event_bytes, sizes->event_count);
    port->wake = loop_wake_create(loop, on_events, arg);
    thread_owner_claim(&port->control);
    return port;
}

void engine_port_destroy(struct engine_port *port)
{
    if (port == NULL)
        return;
    CHECK(!port->started);
    loop_wake_destroy(port->wake);
    ring_destroy(port->commands);
    ring_destroy(port->events);
    free(port);
}

static void *engine_thread(void *arg)
{
    struct engine_port *port = arg;
    thread_owner_claim(&port->engine);
    port->run(port->run_arg);
    return NULL;
}

void engine_port_start(struct engine_port *port, void (*run)(void *arg), void *arg)
{
    thread_owner_check(&port->control);
    CHECK(!port->started);
    port->run = run;
    port->run_arg = arg;
    CHECK(pthread_create(&port->thread, NULL, engine_thread, port) == 0);
    port->started = true;
}

void engine_port_join(struct engine_port *port)
{
    thread_owner_check(&port->control);
    if (!port->started)
        return;
    atomic_store(&port->stopping, true);
    ring_interrupt(port->commands);
    CHECK(pthread_join(port->thread, NULL) == 0);
    port->started = false;
}

void engine_port_command(struct engine_port *port, const void *command)
{
    thread_owner_check(&port->control);
    CHECK(ring_push(port->commands, command) == STATUS_OK);
}

void engine_port_poke(struct engine_port *port)
{
    thread_owner_check(&port->control);
    ring_interrupt(port->commands);
}

bool engine_port_pop_event(struct engine_port *port, void *event_out)
{
    thread_owner_check(&port->control);
    return ring_pop(port->events, event_out) == STATUS_OK;
}

bool engine_port_stopping(const struct engine_port *port)
{
    return atomic_load(&port->stopping);
}

bool engine_port_pop_command(struct engine_port *port, void *command_out)
{
    thread_owner_check(&port->engine);
    return ring_pop(port->commands, command_out) == STATUS_OK;
}

void engine_port_sleep(struct engine_port *port)
{
    thread_owner_check(&port->engine);
    if (!engine_port_stopping(port))
        ring_wait(port->commands, SLEEP_MS);
}

bool engine_port_room(struct engine_port *port, size_t count)
{
    thread_owner_check(&port->engine);
    CHECK(count <= port->sizes.event_count);
    while (port->sizes.event_count - ring_count(port->events) < count) {
        if (engine_port_stopping(port))
            return false;
        /* Control has a doorbell already and drains the ring as fast as it can. Commands that wait
         * keep this thread from sleeping, so it lets others have its CPU. */
        if (ring_wait(port->commands, ROOM_SLEEP_MS))
            sched_yield();
    }
    return true;
}

void engine_port_event(struct engine_port *port, const void *event)
{
    thread_owner_check(&port->engine);
    CHECK(ring_push(port->events, event) == STATUS_OK);
}

void engine_port_ring(struct engine_port *port)
{
    loop_wake_signal(port->wake);
}
