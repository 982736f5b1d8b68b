/* Where the control thread and the engine thread of a worker meet: two bounded rings and their
 * doorbells, and the engine thread itself.
 *
 * Commands go from control to engine, events the other way. The command ring is sized by the node
 * so that a command always fits; the engine makes sure of room for its events before it computes
 * (engine_port_room), so that no push in a step can fail. If control falls behind, the engine waits
 * there: that is the back-pressure of the whole node. */
#ifndef BATON_WORKER_ENGINE_PORT_H
#define BATON_WORKER_ENGINE_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "worker/thread_owner.h"

struct engine_port;

struct engine_port_sizes {
    size_t command_bytes, command_count;
    size_t event_bytes, event_count;
};

/* on_events: on the loop's thread, when events may be there; pops them all. Aborts without memory
 * (start-up only). */
struct engine_port *engine_port_create(struct loop *loop, const struct engine_port_sizes *sizes,
                                       loop_callback on_events, void *arg);
/* After engine_port_join. NULL is fine. */
void engine_port_destroy(struct engine_port *port);

/* ---- control thread ---- */

/* Starts the engine: run(arg) on a thread of its own, until it returns. */
void engine_port_start(struct engine_port *port, void (*run)(void *arg), void *arg);
/* Asks the engine to return and waits until it has: one step or chunk at the longest. */
void engine_port_join(struct engine_port *port);
void engine_port_command(struct engine_port *port, const void *command);
/* Lets a sleeping engine look again, e.g. because pages came back. */
void engine_port_poke(struct engine_port *port);
/* False when there is none. */
bool engine_port_pop_event(struct engine_port *port, void *event_out);

/* ---- engine thread ---- */

bool engine_port_stopping(const struct engine_port *port);
bool engine_port_pop_command(struct engine_port *port, void *command_out);
/* Sleeps until there is a command, a poke or the order to stop. */
void engine_port_sleep(struct engine_port *port);
/* Waits until `count` events fit; false when the engine is to stop instead. */
bool engine_port_room(struct engine_port *port, size_t count);
void engine_port_event(struct engine_port *port, const void *event);
/* Wakes control for the events pushed so far. */
void engine_port_ring(struct engine_port *port);

#endif
