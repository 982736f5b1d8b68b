/* Messages with random contents, made and compared by walking the field tables. */
#ifndef BATON_TESTS_RANDOM_MESSAGE_H
#define BATON_TESTS_RANDOM_MESSAGE_H

#include "base/random.h"
#include "transfer/wire_internal.h"

/* Fills *message (wire_message_bytes_max big); arrays come from the arena. */
void random_message(enum message_id id, struct random *random, struct wire_arena *arena,
                    void *message);
/* NULL when equal, else the name of the first field that differs. */
const char *message_difference(enum message_id id, const void *a, const void *b);

#endif
