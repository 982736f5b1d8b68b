#include "worker/worker_memory.h"

#include <inttypes.h>
#include <stdio.h>

#include "kernels/backend.h"

enum { KEY_BYTES = 96, MEMORY_SHARE = 4 };

/* MemAvailable of /proc/meminfo; 0 when it is not to be had. */
static uint64_t available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return 0;
    char line[128];
    uint64_t kib = 0;
    while (kib == 0 && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1)
            kib = 0;
    }
    fclose(file);
    return kib * 1024;
}

static uint32_t model_number(const struct gguf *file, const char *architecture, const char *name,
                             uint32_t fallback)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", architecture, name);
    uint32_t value;
    return gguf_get_u32(file, key, &value, NULL) == STATUS_OK ? value : fallback;
}

/* Keys and values of one token in all layers; 0 when the file does not tell. */
static uint64_t token_bytes(const struct gguf *file, const char *architecture, enum kv_dtype dtype)
{
    const uint32_t layers = model_number(file, architecture, "block_count", 0);
    const uint32_t heads = model_number(file, architecture, "attention.head_count", 0);
    const uint32_t width = model_number(file, architecture, "embedding_length", 0);
    if (heads == 0)
        return 0;
    const uint32_t kv_heads = model_number(file, architecture, "attention.head_count_kv", heads);
    const uint32_t head_dim =
        model_number(file, architecture, "attention.key_length", width / heads);
    return layers * kv_page_bytes(dtype, KV_BLOCK_TOKENS, kv_heads, head_dim) / KV_BLOCK_TOKENS;
}

uint64_t worker_kv_tokens(const struct gguf *file, const struct text *text,
                          const struct worker_options *options, uint32_t contexts)
{
    if (options->kv_memory_bytes > 0)
        return 0;
    const struct text_info *info = text_info(text);
    const uint64_t context =
        options->context_tokens > 0 ? options->context_tokens : info->context_tokens;
    const uint64_t wanted = context * contexts;
    const uint64_t bytes = token_bytes(file, info->architecture, (enum kv_dtype)options->kv_dtype);
    const uint64_t available = available_bytes();
    if (bytes == 0 || available == 0)
        return wanted;
    const uint64_t share = available / MEMORY_SHARE / bytes;
    if (share < context)
        return context;
    return share < wanted ? share : wanted;
}
