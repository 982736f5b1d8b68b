/* The inside of `baton bench model`: the running of the phases, and the accounting of their parts.
 */
#ifndef BATON_OPS_BATON_BENCH_MODEL_H
#define BATON_OPS_BATON_BENCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "ops/baton/bench_limits.h"
#include "ops/baton/run_session.h"

/* Work of one part: what must be computed, and what must come from memory at least. */
struct part_work {
    double operations, bytes;
};

/* Where the time of some forward calls went. */
struct model_profile {
    const struct model *model;
    enum kv_dtype kv_dtype;
    struct part_work work[FORWARD_PART_COUNT];
    double part_ns[FORWARD_PART_COUNT];
    uint64_t last_ns;
    uint32_t row_count; /* of the largest call */
    struct forward_hooks hooks;
};

void model_profile_init(struct model_profile *profile, const struct model *model,
                        enum kv_dtype kv_dtype);
/* Before a call: its work is added and the clock starts. */
void model_profile_begin(struct model_profile *profile, const struct forward_sequence *sequences,
                         uint32_t count);

/* The roof over one part. */
struct part_roof {
    struct bench_roof roof;
    enum peak_arithmetic arithmetic;
};
struct part_roof model_part_roof(const struct model_profile *profile, struct bench_limits *limits,
                                 enum forward_part part);
const char *model_part_name(enum forward_part part);

struct phase_options {
    uint32_t context, step_count, run_count;
    bool breakdown;
};

struct phase_result {
    double seconds;               /* median: of a whole prompt, or of one decode step */
    uint32_t runs;                /* how many there were */
    struct model_profile counted; /* work only, of all runs */
    uint32_t profiled;            /* prompts or steps that the profile covers, 0: none */
    struct model_profile profile;
};

/* One prompt of token_count tokens in chunks of the session's size. */
enum status bench_prefill(struct run_session *session, enum kv_dtype kv_dtype, uint32_t token_count,
                          const struct phase_options *options, struct phase_result *out,
                          struct error *error);
/* Steps of `batch` sequences that have `context` tokens in the cache. */
enum status bench_decode(struct run_session *session, enum kv_dtype kv_dtype, uint32_t batch,
                         const struct phase_options *options, struct phase_result *out,
                         struct error *error);

/* Opening a model, medians of several times; the first may have to fetch the file from a disk. */
struct load_result {
    uint64_t bytes; /* of all tensors, in the file */
    double open_seconds;
    double pack_seconds; /* of it: reading the tensors and packing them */
    double copy_seconds; /* as many bytes of the file, only copied */
};
enum status bench_load(const struct model_options *options, struct team *team, uint32_t run_count,
                       struct load_result *out, struct error *error);

enum bench_phase { PHASE_PREFILL, PHASE_DECODE, PHASE_COUNT };
struct model_report {
    struct bench_limits *limits;
    const struct run_session *session;
    uint32_t threads, context;
    const char *kv_dtype;
    bool json;
    /* What was reported last, in the same phase: the next is held against it. */
    struct {
        uint32_t count; /* 0: none */
        double seconds, operations;
    } last[PHASE_COUNT];
    struct buffer shares; /* attention's, a line to close with */
};
void model_report_begin(struct model_report *report);
void model_report_load(struct model_report *report, const struct load_result *result);
/* count: tokens of the prompt, or sequences of the batch. */
void model_report_phase(struct model_report *report, enum bench_phase phase, uint32_t count,
                        const struct phase_result *result);
/* After the last phase. */
void model_report_end(struct model_report *report);

#endif
