/* The ids that a choice of widths is measured on. */
#include "model/model_calibrate_internal.h"

#include <stdio.h>
#include <string.h>

#include "model/net/quantize_internal.h"

enum { TEXT_BYTES = 64 << 10 };

/* The first of it are enough: a file may be as long as it likes. */
static enum status read_head(const char *path, struct buffer *out, struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set_errno(error, STATUS_IO, "cannot open %s", path);
    buffer_reserve(out, TEXT_BYTES);
    out->size = fread(out->data, 1, TEXT_BYTES, file);
    enum status status = STATUS_OK;
    if (ferror(file))
        status = error_set_errno(error, STATUS_IO, "cannot read %s", path);
    fclose(file);
    return status;
}

static enum status encode(const struct text *text, const char *bytes, size_t count,
                          struct token_list *ids, struct error *error)
{
    const struct text_info *info = text_info(text);
    if (info->add_bos && info->bos >= 0)
        token_list_add(ids, info->bos);
    struct error more = {0};
    const enum status status = text_encode(text, bytes, count, false, QUANTIZE_TOKENS, ids, &more);
    /* More than are wanted is no failure, the list holds the first of them. Any other limit is. */
    if (status != STATUS_OK && !(status == STATUS_LIMIT && ids->count >= QUANTIZE_TOKENS))
        return error_set(error, status, "%s", more.text);
    if (ids->count > QUANTIZE_TOKENS)
        ids->count = QUANTIZE_TOKENS;
    return STATUS_OK;
}

enum status calibration_read(const struct text *text, const char *path, uint32_t context_tokens,
                             struct token_list *ids, struct error *error)
{
    struct buffer bytes = {0};
    enum status status = STATUS_OK;
    if (path != NULL)
        status = read_head(path, &bytes, error);
    if (status == STATUS_OK)
        status = path != NULL ? encode(text, bytes.data, bytes.size, ids, error)
                              : encode(text, quantize_text, strlen(quantize_text), ids, error);
    buffer_free(&bytes);
    TRY(status);
    /* The built-in text is long enough for every tokenizer that does not throw it away. */
    const size_t least = path != NULL ? QUANTIZE_TOKENS_MIN : 1;
    if (ids->count < least)
        return error_set(error, STATUS_INVALID,
                         "%s has %zu tokens, quantising is measured on at least %zu",
                         path != NULL ? path : "the built-in text", ids->count, least);
    if (ids->count > context_tokens)
        ids->count = context_tokens;
    return STATUS_OK;
}

void calibration_invent(uint32_t vocab_count, uint32_t context_tokens, struct token_list *ids)
{
    for (uint32_t i = 0; i < QUANTIZE_TOKENS && i < context_tokens; i++)
        token_list_add(ids, (int32_t)(i * 2654435761u % vocab_count));
}
