#include "ops/baton/eval_kl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"

enum { DIGITS = 6, TEXT_BYTES_MAX = 64 << 20, READ_BYTES = 1 << 16 };

struct eval_kl {
    struct run_session *run;
    struct run_session reference;
    enum kv_dtype kv_dtype, reference_kv_dtype;
    uint32_t window, vocab_count, token_count;
    uint32_t wanted, done, window_count, agreed;
    double *divergences; /* [wanted] */
};

static float largest(const float *logits, uint32_t count)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < count; i++)
        most = logits[i] > most ? logits[i] : most;
    return most;
}

double eval_kl_divergence(const float *reference, const float *run, uint32_t count)
{
    const double most_p = (double)largest(reference, count), most_q = (double)largest(run, count);
    double sum_p = 0, sum_q = 0, weighted = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double p = (double)reference[i], q = (double)run[i], e = exp(p - most_p);
        sum_p += e;
        sum_q += exp(q - most_q);
        weighted += e * (p - q);
    }
    const double kl = weighted / sum_p + (most_q + log(sum_q)) - (most_p + log(sum_p));
    /* Below zero only by rounding; NaN stays. */
    return kl < 0 ? 0 : kl;
}

static uint32_t likeliest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

enum status eval_kl_open(struct run_session *run, const struct model_options *run_options,
                         enum eval_kl_reference against, uint32_t positions, struct eval_kl **out,
                         struct error *error)
{
    struct model_options options = *run_options;
    const struct model_info *info = model_info(run->model);
    struct eval_kl *kl = calloc(1, sizeof *kl);
    CHECK(kl != NULL);
    *kl = (struct eval_kl){
        .run = run,
        .kv_dtype = options.kv_dtype,
        .reference_kv_dtype = against == EVAL_KL_F32 ? KV_F32 : KV_BF16,
        .window = info->context_tokens < EVAL_KL_WINDOW ? info->context_tokens : EVAL_KL_WINDOW,
        .vocab_count = info->vocab_count,
        .token_count = info->token_count,
        .wanted = positions,
        .divergences = malloc(positions * sizeof *kl->divergences),
    };
    CHECK(kl->divergences != NULL);
    if (against == EVAL_KL_F32)
        options.activations = ACTIVATION_F32;
    options.quantize = QUANTIZE_NONE;
    options.calibrate = NULL;
    options.kv_dtype = kl->reference_kv_dtype;
    const enum status status =
        run_session_open(&options, SESSION_TEXT_IF_THERE, &kl->reference, error);
    if (status != STATUS_OK) {
        free(kl->divergences);
        free(kl);
        return status;
    }
    *out = kl;
    return STATUS_OK;
}

void eval_kl_close(struct eval_kl *kl)
{
    run_session_close(&kl->reference);
    free(kl->divergences);
    free(kl);
}

static enum status compare_rows(struct eval_kl *kl, const float *reference, const float *run,
                                uint32_t rows, struct error *error)
{
    for (uint32_t row = 0; row < rows; row++) {
        const float *p = reference + (size_t)row * kl->vocab_count;
        const float *q = run + (size_t)row * kl->vocab_count;
        const double divergence = eval_kl_divergence(p, q, kl->token_count);
        if (!isfinite(divergence))
            return error_set(error, STATUS_CORRUPT,
                             "the logits of position %" PRIu32 " are not finite", kl->done);
        kl->divergences[kl->done++] = divergence;
        kl->agreed += likeliest(p, kl->token_count) == likeliest(q, kl->token_count);
    }
    return STATUS_OK;
}

static enum status forward(struct sequence *sequence, const int32_t *ids, uint32_t rows,
                           const float **logits_out, struct error *error)
{
    const struct forward_sequence part = {.tokens = ids,
                                          .count = rows,
                                          .position = sequence->position,
                                          .slots = sequence->slots,
                                          .logit_rows = rows};
    TRY(model_forward(sequence->session->model, &part, 1, NULL, logits_out, error));
    sequence->position += rows;
    return STATUS_OK;
}

/* Both models read the same chunks; the logits of either stay valid until its next one. */
static enum status feed_window(struct eval_kl *kl, struct sequence *reference, struct sequence *run,
                               const int32_t *ids, uint32_t count, struct error *error)
{
    const uint32_t chunk = kl->run->chunk_tokens;
    uint32_t rows;
    for (uint32_t done = 0; done < count; done += rows) {
        const float *reference_logits, *run_logits;
        rows = count - done < chunk ? count - done : chunk;
        TRY(forward(reference, ids + done, rows, &reference_logits, error));
        TRY(forward(run, ids + done, rows, &run_logits, error));
        TRY(compare_rows(kl, reference_logits, run_logits, rows, error));
    }
    return STATUS_OK;
}

static enum status add_window(struct eval_kl *kl, const int32_t *ids, uint32_t count,
                              struct error *error)
{
    struct sequence reference, run;
    TRY(sequence_open(&kl->reference, count, &reference, error));
    enum status status = sequence_open(kl->run, count, &run, error);
    if (status == STATUS_OK) {
        status = feed_window(kl, &reference, &run, ids, count, error);
        sequence_close(&run);
    }
    sequence_close(&reference);
    kl->window_count++;
    return status;
}

enum status eval_kl_add(struct eval_kl *kl, const int32_t *ids, size_t count, struct error *error)
{
    while (count > 0 && kl->done < kl->wanted) {
        uint32_t part = count < kl->window ? (uint32_t)count : kl->window;
        if (part > kl->wanted - kl->done)
            part = kl->wanted - kl->done;
        TRY(add_window(kl, ids, part, error));
        ids += part;
        count -= part;
    }
    return STATUS_OK;
}

static enum status read_file(const char *path, struct buffer *out, struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set_errno(error, STATUS_IO, "cannot open %s", path);
    enum status status = STATUS_OK;
    size_t got;
    do {
        buffer_reserve(out, READ_BYTES);
        got = fread(out->data + out->size, 1, READ_BYTES, file);
        out->size += got;
        if (out->size > TEXT_BYTES_MAX)
            status = error_set(error, STATUS_LIMIT, "%s has more than %d bytes, the limit", path,
                               TEXT_BYTES_MAX);
    } while (got > 0 && status == STATUS_OK);
    if (status == STATUS_OK && ferror(file))
        status = error_set_errno(error, STATUS_IO, "cannot read %s", path);
    fclose(file);
    return status;
}

/* Each window is a prompt of its own: where the tokenizer puts bos first, every one begins with it.
 * Models that were trained so are not themselves without. */
static enum status add_prompts(struct eval_kl *kl, int32_t bos, const struct token_list *ids,
                               struct error *error)
{
    struct token_list prompt = {0};
    enum status status = STATUS_OK;
    if (bos < 0 || kl->window < 2)
        return eval_kl_add(kl, ids->ids, ids->count, error);
    for (size_t done = 0; status == STATUS_OK && done < ids->count && kl->done < kl->wanted;) {
        token_list_clear(&prompt);
        token_list_add(&prompt, bos);
        while (prompt.count < kl->window && done < ids->count)
            token_list_add(&prompt, ids->ids[done++]);
        status = eval_kl_add(kl, prompt.ids, prompt.count, error);
    }
    token_list_free(&prompt);
    return status;
}

enum status eval_kl_add_text(struct eval_kl *kl, const char *path, struct error *error)
{
    const struct text *text = kl->run->text;
    const struct text_info *info = text_info(text);
    struct buffer bytes = {0};
    struct token_list ids = {0};
    enum status status = read_file(path, &bytes, error);
    if (status == STATUS_OK)
        status =
            text_encode(text, bytes.data, bytes.size, false, EVAL_KL_POSITIONS_MAX, &ids, error);
    if (status == STATUS_OK)
        status = add_prompts(kl, info->add_bos ? info->bos : -1, &ids, error);
    token_list_free(&ids);
    buffer_free(&bytes);
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the divergences come to. */
struct summary {
    double mean, p99, most, agreement;
};

static struct summary summarize(struct eval_kl *kl)
{
    double sum = 0;
    qsort(kl->divergences, kl->done, sizeof *kl->divergences, compare);
    for (uint32_t i = 0; i < kl->done; i++)
        sum += kl->divergences[i];
    return (struct summary){
        .mean = sum / kl->done,
        .p99 = kl->divergences[(uint64_t)kl->done * 99 / 100],
        .most = kl->divergences[kl->done - 1],
        .agreement = (double)kl->agreed / kl->done,
    };
}

static void put_number(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    json_put_number(writer, value, DIGITS);
}

static void put_text(struct json_writer *writer, const char *key, const char *text)
{
    json_key(writer, key);
    json_put_text(writer, text);
}

static double weight_megabytes(const struct run_session *session)
{
    return (double)model_info(session->model)->weight_bytes / 1e6;
}

static void print_json(const struct eval_kl *kl, const struct summary *summary)
{
    struct buffer line = {0};
    struct json_writer writer;
    json_writer_init(&writer, &line);
    json_open_object(&writer);
    json_key(&writer, "positions");
    json_put_u64(&writer, kl->done);
    json_key(&writer, "windows");
    json_put_u64(&writer, kl->window_count);
    put_number(&writer, "kl_mean", summary->mean);
    put_number(&writer, "kl_p99", summary->p99);
    put_number(&writer, "kl_max", summary->most);
    put_number(&writer, "top1_agreement", summary->agreement);
    put_text(&writer, "backend", model_backend_text(kl->run->model));
    put_number(&writer, "weights_mb", weight_megabytes(kl->run));
    put_number(&writer, "reference_weights_mb", weight_megabytes(&kl->reference));
    put_text(&writer, "kv_dtype", kv_dtype_name(kl->kv_dtype));
    put_text(&writer, "reference", model_backend_text(kl->reference.model));
    put_text(&writer, "reference_kv_dtype", kv_dtype_name(kl->reference_kv_dtype));
    json_close_object(&writer);
    buffer_add_char(&line, '\n');
    fwrite(line.data, 1, line.size, stdout);
    buffer_free(&line);
}

enum status eval_kl_print(struct eval_kl *kl, bool json, struct error *error)
{
    if (kl->done < kl->wanted)
        return error_set(error, STATUS_INVALID,
                         "there are %" PRIu32 " positions, --positions asks for %" PRIu32, kl->done,
                         kl->wanted);
    const struct summary summary = summarize(kl);
    if (json) {
        print_json(kl, &summary);
    } else {
        printf("reference        %s, KV %s\n", model_backend_text(kl->reference.model),
               kv_dtype_name(kl->reference_kv_dtype));
        printf("this run         %s, KV %s\n", model_backend_text(kl->run->model),
               kv_dtype_name(kl->kv_dtype));
        printf("weights          %.1f MB, the reference's %.1f MB\n", weight_megabytes(kl->run),
               weight_megabytes(&kl->reference));
        printf("positions        %" PRIu32 " in %" PRIu32 " windows of up to %" PRIu32 " tokens\n",
               kl->done, kl->window_count, kl->window);
        printf("KL divergence    mean %.6f, 99th percentile %.6f, largest %.6f nats\n",
               summary.mean, summary.p99, summary.most);
        printf("likeliest token  the same at %.2f %% of positions\n", 100 * summary.agreement);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        return error_set_errno(error, STATUS_IO, "cannot write the result");
    return STATUS_OK;
}
