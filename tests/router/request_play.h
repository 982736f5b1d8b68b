/* The request machine with a make-believe fleet and virtual time. */
#ifndef BATON_TESTS_ROUTER_REQUEST_PLAY_H
#define BATON_TESTS_ROUTER_REQUEST_PLAY_H

#include "base/clock.h"
#include "router/request.h"

enum { PREFILL_NODE = 0x10001, DECODE_NODE = 0x10002, OTHER_NODE = 0x10003, PROMPT = 10 };

/* A request and everything it asked for, summed up. */
struct play {
    struct request request;
    struct request_actions actions; /* of the last event */
    uint64_t now_ns;
    char text[128]; /* delivered ids as letters */
    uint32_t reserves, prefills, places, finishes, failures, drops;
    uint32_t cancels_prefill, cancels_decode;
    int prefill_charges, decode_charges; /* charged and not yet given back */
    uint32_t cancel_attempt;
};

void play_begin(struct play *play);
void play_encoded(struct play *play);
void play_placed(struct play *play, worker_handle prefill, worker_handle decode);
void play_reserved(struct play *play);
void play_tokens(struct play *play, worker_handle worker, uint32_t offset, const char *letters,
                 enum finish_code finish);
/* An event that has no more to it than a worker, and a failure of status 503. */
void play_simple(struct play *play, enum request_event_kind kind, worker_handle worker);
void play_feed(struct play *play, struct request_event event);
void play_sum_up(struct play *play); /* after request_handle */
/* Plays up to a state with both nodes in it. */
void play_reach(struct play *play, enum request_state state);
/* Ended once, nothing charged, nothing answered any more. */
void play_expect_ended(struct play *play);
/* One token of one of several choices; what it leads to is in play->actions. */
void play_choice_token(struct play *play, worker_handle worker, uint32_t choice, uint32_t offset,
                       enum finish_code finish);

/* The actions are exactly these; the numbers are of choices. */
struct expected_action {
    enum request_action_kind kind;
    uint32_t choice;
};
void play_expect_actions(const struct play *play, const struct expected_action *expected,
                         uint32_t count);

#endif
