/* The walk over the table of tensors: what the files have for every row, checked. */
#ifndef BATON_MODEL_NET_TENSOR_WALK_INTERNAL_H
#define BATON_MODEL_NET_TENSOR_WALK_INTERNAL_H

#include "model/net/quantize_internal.h"
#include "model/net/tensor_table_internal.h"
#include "model/net/weight_source_internal.h"

/* One tensor of the model. */
struct tensor_place {
    const struct tensor_row *row;
    uint32_t layer, expert;
    char name[TENSOR_NAME_BYTES]; /* in the file */
    struct tensor_source source;
    uint32_t outputs, inputs; /* of the result */
    uint64_t bytes;           /* in the file, as far as it is read */
    bool narrowable;          /* may take 4 bits, which are fewer than it has */
};

struct tensor_walk {
    const struct model_file *file;
    const char *file_name;
    const struct net_config *config;
    bool reference;                   /* what would be rounded becomes floats */
    const struct quantize_plan *plan; /* NULL: nothing is quantised */

    uint64_t total_bytes; /* of all places */
    bool *used;           /* [tensors of the file] */
};

typedef enum status tensor_visit(void *arg, struct tensor_place *place, struct error *error);

/* Checks that the files have every tensor of the table in its shape and none besides, and fills in
 * the counts. tensor_walk_release after success or failure. */
enum status tensor_walk_check(struct tensor_walk *walk, struct error *error);
/* Runs visit for every tensor of the table that the files have, those of the model itself first,
 * then layer by layer in the order of the table. */
enum status tensor_walk_each(struct tensor_walk *walk, tensor_visit *visit, void *arg,
                             struct error *error);
void tensor_walk_release(struct tensor_walk *walk);

#endif
