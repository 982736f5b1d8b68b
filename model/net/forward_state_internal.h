/* The inside of `struct forward`, shared by forward*.c only. Shapes: T rows and L logit rows of a
 * call, I the widest feed-forward, the rest as in net_config_internal.h. */
#ifndef BATON_MODEL_NET_FORWARD_STATE_INTERNAL_H
#define BATON_MODEL_NET_FORWARD_STATE_INTERNAL_H

#include "model/net/forward_internal.h"

/* Rows that go through a piece of the network together. */
struct batch {
    struct batch_sequence *sequences; /* [count] */
    uint32_t count;
    uint32_t rows;
    device_ptr hidden;  /* [rows][E] the residual stream */
    device_ptr queries; /* [rows][H*D] */
};

/* A rotation: of all layers, or of those with a window. */
struct rotation {
    float *inverse_frequencies; /* [rotary / 2], host memory */
    float magnitude;            /* of sine and cosine */
    float *host_cos, *host_sin; /* [T][rotary / 2] */
    device_ptr cos, sin;        /* [T][rotary / 2] */
};

struct forward {
    struct backend *backend;
    const struct net_config *config;
    const struct weights *weights;
    const struct page_pool *pages;
    struct forward_limits limits;
    bool fused;              /* feed-forward is one operation of the backend */
    uint32_t rotation_count; /* 0 where positions are learned */

    const struct forward_hooks *hooks; /* of the running call, may be NULL */

    struct batch all;  /* every row of the call, T <= limits.rows */
    struct batch tail; /* rows with logits, L <= limits.logit_rows */
    device_ptr keys;   /* [T][K*D] */
    device_ptr values; /* [T][K*D] */
    device_ptr mixed;  /* [T][H*D] attention's result */
    device_ptr logits; /* [L][V] */
    struct rotation rotations[ROPE_COUNT];

    /* Of what is not fused, else null. */
    device_ptr normed;   /* [T][E] */
    device_ptr gate, up; /* [T][I] */
    device_ptr added;    /* [T][E] what is added to the residual */
    device_ptr gathered; /* [T][E] the rows of an expert */
    device_ptr routes;   /* [T][X] logits of experts */

    /* Host memory. */
    float *host_logits;        /* [L][V], NULL where the device's own are visible */
    struct top_entry *top;     /* [L] */
    struct forward_best *best; /* [L] */
    int32_t *ids;              /* [T] */
    int32_t *positions;        /* [T] */
    uint32_t *tail_rows;       /* [L] places of the tail rows among all */
    uint32_t *route_ids;       /* [T][used] experts of a row */
    float *route_weights;      /* [T][used] */
    uint32_t *expert_rows;     /* [T * used] rows, by expert */
    float *expert_weights;     /* [T * used] their weights */
    uint32_t *expert_ends;     /* [X] */
};

/* A norm of the architecture; bias null: by the root mean square. */
struct norm {
    device_ptr gain, bias; /* [E] */
};

/* forward_buffers.c */
enum status forward_allocate(struct forward *forward, struct error *error);

/* forward_layer.c */
void forward_part_done(const struct forward *f, enum forward_part part);
/* Products of the normed rows of x. */
void forward_products(struct forward *f, device_ptr x, struct norm norm,
                      const struct project_output *outputs, uint32_t output_count, uint32_t rows);
/* All layers: KV of all rows, and what follows of the rows that are wanted. */
void forward_layers(struct forward *f);
/* silu(gate) * up or its like, into f->gate. */
void forward_activate(struct forward *f, uint32_t rows, uint32_t width);

/* forward_experts.c */
void forward_experts(struct forward *f, const struct layer_weights *layer,
                     const struct batch *batch);

#endif
