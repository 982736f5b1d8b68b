/* Start-up of a worker: everything up to the loop. */
#include "worker/worker.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "transfer/fault.h"
#include "worker/worker_memory.h"

enum {
    MIB = 1 << 20,
    PROGRESS_STEP = 10,
    LOG_STEP = 25,
    PATIENCE_MS = 1000,
    MEASURED_TOKENS_MAX = 64,
    MEASURED_POSITION_MAX = 2048,
};

/* ---- loading ---- */

struct progress {
    struct notify *notify;
    uint64_t start_ns;
    uint64_t told, logged; /* per cent */
};

/* Whoever waits for the worker hears of every tenth; the log says a few words about loads of a
 * second and more. */
static void on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress *progress = arg;
    const uint64_t percent =
        total_bytes == 0 ? 100 : (uint64_t)(100.0 * (double)done_bytes / (double)total_bytes);
    if (percent / PROGRESS_STEP != progress->told / PROGRESS_STEP) {
        progress->told = percent;
        notify_line(progress->notify, "STATUS=loading model %" PRIu64 " %%", percent);
    }
    if (percent / LOG_STEP != progress->logged / LOG_STEP && percent < 100 &&
        clock_now_ns(clock_monotonic()) - progress->start_ns >= PATIENCE_MS * NS_PER_MS) {
        progress->logged = percent;
        LOG_INFO("loading the model: %" PRIu64 " %% of %" PRIu64 " MiB", percent,
                 total_bytes / MIB);
    }
}

/* Until the loop has its own handlers there is nothing to finish up. */
static void on_early_signal(int number)
{
    (void)number;
    _exit(0);
}

static enum status open_model(struct worker *worker, const struct worker_batch *batch,
                              struct error *error)
{
    const struct worker_options *o = worker->options;
    struct model_outline outline;
    LOG_INFO("loading %s", o->model);
    notify_line(&worker->notify, "STATUS=loading model 0 %%");
    TRY(text_open(o->model, &worker->text, error));
    uint64_t kv_bytes = 0;
    enum status status = model_outline_read(o->model, &outline, error);
    if (status == STATUS_OK)
        status = worker_kv_bytes(&outline, o, &kv_bytes, error);

    struct progress progress = {.notify = &worker->notify,
                                .start_ns = clock_now_ns(clock_monotonic())};
    const struct model_options options = {
        .path = o->model,
        .activations = (enum activation_mode)o->activations,
        .quantize = (enum model_quantize)o->quantize,
        .calibrate = o->calibrate,
        .kv_dtype = (enum kv_dtype)o->kv_dtype,
        .threads = o->threads,
        .page_tokens = o->page_tokens,
        .context_tokens = o->context_tokens,
        .kv_bytes = kv_bytes,
        .max_rows = batch->rows,
        .max_sequences = batch->sequences,
        .max_logit_rows = batch->logit_rows,
        .progress = on_progress,
        .progress_arg = &progress,
    };
    if (status == STATUS_OK)
        status = model_open(&options, &worker->model, error);
    if (status != STATUS_OK) {
        text_close(worker->text);
        worker->text = NULL;
    }
    return status;
}

/* ---- what it can do ---- */

/* Of a call or several, where the tokens of each have so many before them on average. */
struct measured {
    double tokens_per_s, context;
};

static enum status call(struct worker *worker, const uint32_t *slots, uint32_t position,
                        uint32_t rows, struct error *error)
{
    const uint32_t vocab = model_info(worker->model)->vocab_count;
    int32_t tokens[MEASURED_TOKENS_MAX];
    for (uint32_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)(((position + i) * 7919u) % vocab);
    const struct forward_sequence sequence = {
        .tokens = tokens, .count = rows, .position = position, .slots = slots, .logit_rows = 1};
    const float *logits;
    return model_forward(worker->model, &sequence, 1, NULL, &logits, error);
}

/* Calls of `rows` rows each, from `position` on: what placement starts from. The pages before that
 * hold nothing, which takes as long to look at as anything once the system has given them out: a
 * row sees to that first. */
static enum status measure(struct worker *worker, uint32_t rows, uint32_t position,
                           struct measured *out, struct error *error)
{
    const uint32_t room = model_info(worker->model)->context_tokens - position;
    const uint32_t total = room < MEASURED_TOKENS_MAX ? room : MEASURED_TOKENS_MAX;
    const uint32_t pages = job_pages(position + total, worker->options->page_tokens);
    uint32_t slots[MEASURED_TOKENS_MAX + MEASURED_POSITION_MAX];
    if (rows > total)
        rows = total;
    CHECK(rows > 0); // a batch and a context have room for one
    /* One row a call is slow: eight of them tell enough. */
    const uint32_t calls = rows * 8 <= total ? 8 : total / rows;
    /* A whole context fits in the pool, and nobody else uses it yet. */
    CHECK(page_pool_reserve(worker->pages, pages) == STATUS_OK);
    page_pool_take(worker->pages, pages, slots);
    enum status status = STATUS_OK;
    if (position > 0)
        status = call(worker, slots, position, 1, error);
    const uint64_t start_ns = clock_now_ns(worker->clock);
    for (uint32_t i = 0; i < calls && status == STATUS_OK; i++)
        status = call(worker, slots, position + i * rows, rows, error);
    const uint64_t spent_ns = clock_now_ns(worker->clock) - start_ns;
    page_pool_free(worker->pages, slots, pages);
    *out =
        (struct measured){.tokens_per_s = (double)(calls * rows) * 1e9 / (double)(spent_ns + 1),
                          .context = (double)read_context(position, calls * rows) / (calls * rows)};
    return status;
}

/* How fast it is at all it computes, at prompts where those are not all, and how much slower behind
 * a long beginning. */
static enum status measure_speeds(struct worker *worker, const struct worker_batch *batch,
                                  struct error *error)
{
    const uint32_t context = model_info(worker->model)->context_tokens;
    struct measured all, reading, behind;
    TRY(measure(worker, batch->measured_rows, 0, &all, error));
    reading = all;
    if (batch->read_rows > 0)
        TRY(measure(worker, batch->read_rows, 0, &reading, error));
    worker->tokens_per_s = all.tokens_per_s;
    worker->read_tokens_per_s = batch->read_rows > 0 ? reading.tokens_per_s : 0;
    worker->read_cost = (struct read_cost){.token_us = 1e6 / reading.tokens_per_s};
    if (context < 2 * MEASURED_TOKENS_MAX)
        return STATUS_OK; /* there are no long prompts */
    const uint32_t most = context - MEASURED_TOKENS_MAX;
    const uint32_t position = most < MEASURED_POSITION_MAX ? most : MEASURED_POSITION_MAX;
    TRY(measure(worker, batch->read_rows > 0 ? batch->read_rows : batch->measured_rows, position,
                &behind, error));
    worker->read_cost = read_cost_between(reading.context, 1e6 / reading.tokens_per_s,
                                          behind.context, 1e6 / behind.tokens_per_s);
    return STATUS_OK;
}

static void log_sizes(const struct worker *worker, const struct worker_batch *batch)
{
    const struct model_info *info = model_info(worker->model);
    const struct kv_layout *layout = page_pool_layout(worker->pages);
    const uint32_t pages = page_pool_slot_count(worker->pages);
    LOG_INFO("packed %" PRIu64 " MiB of tensors in %.2f s, %.1f GB/s", info->tensor_bytes / MIB,
             info->pack_seconds, (double)info->tensor_bytes / (info->pack_seconds * 1e9));
    if (info->narrow_share > 0)
        LOG_INFO("%.0f %% of the weights that may take 4 bits take them", 100 * info->narrow_share);
    LOG_INFO("model %s (%s), %" PRIu32 " layers, %" PRIu32 " ids, context %" PRIu32
             " tokens, weights %" PRIu64 " MiB, %s",
             info->name, info->architecture, info->layers, info->vocab_count, info->context_tokens,
             info->weight_bytes / MIB, model_backend_text(worker->model));
    LOG_INFO("KV pool: %" PRIu32 " pages of %" PRIu32 " tokens in %s, %" PRIu64 " tokens, %" PRIu64
             " MiB, %s",
             pages, layout->page_tokens, kv_dtype_name(layout->dtype),
             (uint64_t)pages * layout->page_tokens, info->kv_bytes / MIB,
             worker->options->kv_prefault ? "all of it taken" : "taken as it is used");
    LOG_INFO("prefix index: at most %" PRIu32 " pages, %zu KiB", pages,
             prefix_tree_bytes(worker->prefixes) >> 10);
    LOG_INFO("one forward pass: at most %" PRIu32 " rows of %" PRIu32
             " sequences; %.0f tokens/s with %" PRIu32 " rows; a prompt's token takes %.0f us, and "
             "%.0f more behind 1,000 others",
             batch->rows, batch->sequences, worker->tokens_per_s, batch->measured_rows,
             worker->read_cost.token_us, 1000 * worker->read_cost.context_us);
}

static void fill_facts(struct worker *worker)
{
    const struct model_info *info = model_info(worker->model);
    const struct text_info *words = text_info(worker->text);
    worker->limits = (struct job_limits){
        .vocab_count = info->vocab_count,
        .context_tokens = info->context_tokens,
        .page_tokens = worker->options->page_tokens,
        .pages_total = page_pool_slot_count(worker->pages),
        .eos_ids = words->eos_ids,
        .eos_count = words->eos_count,
    };
    worker_node_name(worker->options, worker->role, worker->self.node);
    worker_identity(model_identity(worker->model), info, &worker->digests, &worker->self.identity);
    worker->self.identity.mover = wire_str(worker->mover->name);
}

/* The addresses are known before the model is: a forgotten secret is told at once. */
static enum status open_gate(struct worker *worker, const char *listen, struct error *error)
{
    const struct worker_options *o = worker->options;
    const char *addresses[CONFIG_TEXTS_MAX + 1];
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->routers.count; i++)
        addresses[count++] = o->routers.items[i];
    if (listen)
        addresses[count++] = listen;
    random_os_bytes(worker->self.boot_id, sizeof worker->self.boot_id);
    worker->self.gate = &worker->gate;
    return gate_self_open(&worker->gate, o->secret_file, o->insecure, worker->self.boot_id,
                          (uint32_t)worker->role, addresses, count, error);
}

/* Certificates go before the secret: whoever gives them wants them. */
static enum status choose_mover(struct worker *worker, struct error *error)
{
    const struct worker_options *o = worker->options;
    const char *names = "";
    const char *name = o->mover ? o->mover : mover_default_name;
    worker->mover = mover_by_name(name, &names);
    /* The loopback mover reaches nobody outside of this process. */
    if (worker->mover == NULL || worker->mover == &mover_loopback_ops)
        return error_set(error, STATUS_INVALID, "--mover: \"%.40s\" is not built in, there is: %s",
                         name, names);
    worker->tls = (struct tls_identity){.key = worker->gate.shut ? worker->gate.tls_key : NULL,
                                        .cert_file = o->tls_cert,
                                        .key_file = o->tls_key,
                                        .ca_file = o->tls_ca};
    if (strcmp(name, "tls") == 0 && worker->tls.key == NULL && o->tls_cert == NULL)
        return error_set(error, STATUS_INVALID,
                         "--mover tls needs --secret-file, or --tls-cert, --tls-key and --tls-ca");
    return STATUS_OK;
}

enum status worker_open(struct worker *worker, enum worker_role role,
                        const struct worker_options *options, const char *listen,
                        const struct worker_batch *batch, struct error *error)
{
    *worker = (struct worker){.role = role, .options = options, .clock = clock_monotonic()};
    worker->notify.fd = -1;
    worker_node_name(options, role, worker->self.node);
    log_init(worker->self.node, LOG_LEVEL_INFO);
    TRY(notify_open(&worker->notify, options->notify_fd, error));
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_early_signal);
    signal(SIGINT, on_early_signal);
    TRY(fault_arm(options->fault, options->enable_fault_injection, error));
    TRY(open_gate(worker, listen, error));
    TRY(choose_mover(worker, error));
    TRY(open_model(worker, batch, error));
    worker->pages = model_pages(worker->model);
    if (options->kv_prefault) {
        notify_line(&worker->notify, "STATUS=taking the memory of the KV pool");
        worker_kv_touch(worker->pages);
    }
    if (options->enable_fault_injection)
        page_pool_poison(worker->pages, true);
    fill_facts(worker);
    enum status status = measure_speeds(worker, batch, error);
    if (status == STATUS_OK)
        status = prefix_tree_create(worker->pages, NULL, &worker->prefixes, error);
    if (status != STATUS_OK) {
        model_close(worker->model);
        text_close(worker->text);
        return status;
    }
    log_sizes(worker, batch);
    worker->loop = loop_create();
    return STATUS_OK;
}

void worker_close(struct worker *worker)
{
    loop_destroy(worker->loop);
    prefix_tree_destroy(worker->prefixes);
    model_close(worker->model);
    text_close(worker->text);
}

int worker_fail(struct worker *worker, const struct error *error)
{
    LOG_ERROR("%s", error->text);
    notify_line(&worker->notify, "FAILED=%s", error->text);
    return 1;
}
