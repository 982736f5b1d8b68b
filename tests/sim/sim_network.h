/* A mover between simulated nodes, and the adversary in the middle of it.
 *
 * What is sent waits as an event until its time, drawn from the seed, has come. The adversary
 * drops, delays, reorders and repeats messages and data, flips bits of data, breaks links without a
 * word and cuts the network. A data message goes eager (its bytes are taken at once) or by
 * rendezvous (they are read, and written, long after it was announced), as drawn. It keeps to the
 * contract of mover.h in everything that a reliable, mortal network promises: closed links are told
 * of, sends and receives end once, before that. */
#ifndef BATON_TESTS_SIM_NETWORK_H
#define BATON_TESTS_SIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "transfer/mover.h"

/* Chances in a thousand, of each message. */
struct sim_odds {
    uint32_t drop, repeat, corrupt, cut; /* cut: the link breaks; one end hears of it late */
    uint32_t delay_us;                   /* at most, as a rule; sometimes a thousand times that */
    bool in_order;                       /* messages of a link do not overtake each other */
    uint32_t bytes_per_s; /* of a link, one way; what is sent waits for its turn. 0: no limit */
};

struct sim_network;

struct sim_network *sim_network_create(uint64_t seed);
void sim_network_destroy(struct sim_network *network);
void sim_network_odds(struct sim_network *network, const struct sim_odds *odds);
/* From now on nothing passes, or everything again. */
void sim_network_part(struct sim_network *network, bool parted);
/* A node that stands still takes nothing; what comes waits. node: the one of sim_network_enter. */
void sim_network_stop(struct sim_network *network, uint32_t node, bool stopped);

/* Movers that are created belong to this node from now on. */
void sim_network_enter(struct sim_network *network, uint32_t node);
const struct mover_ops *sim_network_mover(void);

/* When the next event is due; UINT64_MAX for never. */
uint64_t sim_network_next_ns(const struct sim_network *network);
/* Delivers the first event that is due at sim_now_ns; false when there is none. *node_out: to which
 * node. */
bool sim_network_deliver(struct sim_network *network, uint32_t *node_out);

/* Is a byte at this place still to be read (from) or written (to) by something on its way? */
bool sim_network_uses(const struct sim_network *network, const void *at, size_t bytes);
uint64_t sim_network_corrupted(const struct sim_network *network); /* data messages so far */

#endif
