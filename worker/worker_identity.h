/* A model's identity in the form that travels: what model/ and transfer/ know, side by side. */
#ifndef BATON_WORKER_WORKER_IDENTITY_H
#define BATON_WORKER_WORKER_IDENTITY_H

#include "model/model.h"
#include "transfer/wire.h"

/* Bytes of the two digests that the message points at. */
struct worker_digests {
    uint8_t weights[16], tokenizer[16];
};

/* Fills *out, which points into all three others: they must live as long as it is used. */
void worker_identity(const struct model_identity *identity, const struct model_info *info,
                     struct worker_digests *digests, struct msg_identity *out);

#endif
