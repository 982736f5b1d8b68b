/* Tokens that came before their turn: one run of positions, grown at its end. The decode node's
 * first steps can overtake the prefill node's first token; both links keep their own order, so a
 * second gap is a fault. Belongs to one request. */
#ifndef BATON_ROUTER_REQUEST_HELD_H
#define BATON_ROUTER_REQUEST_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "transfer/wire.h"

enum { REQUEST_HELD_TOKENS_MAX = 4096 };

struct request_held;

/* Copies the step behind the run (made on first use). False when it does not continue the run, has
 * alternatives of another width, comes after a finish, or the run would pass its limit. */
bool request_held_add(struct request_held **held, const struct msg_step *step);
/* The run as one step when it begins at position and was not viewed before. */
bool request_held_view(struct request_held *held, uint32_t position, struct msg_step *step_out);
void request_held_free(struct request_held *held);

#endif
