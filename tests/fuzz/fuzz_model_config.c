/* Any bytes as a folder's config.json, beside the weights of a small llama: described or refused
 * with a sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "model/model.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {
    "\"rope_scaling\":{",
    "\"rope_parameters\":{",
    "\"rope_type\":\"yarn\"",
    "\"layer_types\":[",
    "\"sliding_attention\"",
    "\"full_attention\":{",
    "\"num_experts\":1024,",
    "\"num_hidden_layers\":1024,",
    "\"sliding_window\":4,",
    "\"tie_word_embeddings\":true,",
    "\"factor\":",
    "1e-45",
    "1e308",
    "-1",
    "0",
    "4294967296",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    NULL,
};

enum { EMBEDDING = 32, FEED_FORWARD = 64, VOCAB = 16 };

static char folder[64], config_path[96], weights_path[96];
static int memory = -1; /* what config.json is a link to: a file that never meets a disk */

static void folder_remove(void)
{
    unlink(config_path);
    unlink(weights_path);
    rmdir(folder);
}

static void tensor_add(struct buffer *header, size_t *offset, const char *name, int rows,
                       int columns)
{
    const size_t bytes = (size_t)rows * (size_t)columns * sizeof(float);
    buffer_printf(header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", header->size > 1 ? "," : "",
                  name);
    if (rows > 1)
        buffer_printf(header, "%d,", rows);
    buffer_printf(header, "%d],\"data_offsets\":[%zu,%zu]}", columns, *offset, *offset + bytes);
    *offset += bytes;
}

/* One layer of two heads, in the shapes of the config.json of the corpus. */
static void weights_write(void)
{
    struct buffer header = {0};
    size_t bytes = 0;
    buffer_add_char(&header, '{');
    tensor_add(&header, &bytes, "model.embed_tokens.weight", VOCAB, EMBEDDING);
    tensor_add(&header, &bytes, "model.norm.weight", 1, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.input_layernorm.weight", 1, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.post_attention_layernorm.weight", 1, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.self_attn.q_proj.weight", EMBEDDING, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.self_attn.k_proj.weight", EMBEDDING / 2, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.self_attn.v_proj.weight", EMBEDDING / 2, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.self_attn.o_proj.weight", EMBEDDING, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.mlp.gate_proj.weight", FEED_FORWARD, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.mlp.up_proj.weight", FEED_FORWARD, EMBEDDING);
    tensor_add(&header, &bytes, "model.layers.0.mlp.down_proj.weight", EMBEDDING, FEED_FORWARD);
    buffer_add_char(&header, '}');
    FILE *out = fopen(weights_path, "wb");
    const uint64_t length = header.size;
    CHECK(out != NULL && fwrite(&length, 1, sizeof length, out) == sizeof length);
    CHECK(fwrite(header.data, 1, header.size, out) == header.size);
    for (size_t i = 0; i < bytes; i++)
        CHECK(fputc(0, out) == 0);
    CHECK(fclose(out) == 0);
    buffer_free(&header);
}

static void folder_make(void)
{
    const char *temporary = getenv("TMPDIR");
    CHECK(snprintf(folder, sizeof folder, "%s/baton-fuzz-XXXXXX",
                   temporary != NULL ? temporary : "/tmp") < (int)sizeof folder);
    CHECK(mkdtemp(folder) != NULL);
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    snprintf(weights_path, sizeof weights_path, "%s/model.safetensors", folder);
    atexit(folder_remove);
    char target[64];
    memory = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(memory >= 0);
    snprintf(target, sizeof target, "/proc/self/fd/%d", memory);
    CHECK(symlink(target, config_path) == 0);
    log_init("fuzz", LOG_LEVEL_ERROR);
    weights_write();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (folder[0] == '\0')
        folder_make();
    CHECK(ftruncate(memory, 0) == 0 && pwrite(memory, data, bytes, 0) == (ssize_t)bytes);
    struct model_outline outline;
    struct error error = {0};
    if (model_outline_read(folder, &outline, &error) != STATUS_OK)
        CHECK(error.text[0] != '\0');
    else
        CHECK(outline.layers == 1 && outline.kv_heads * outline.head_dim == EMBEDDING / 2);
    return 0;
}
