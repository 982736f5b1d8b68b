/* Any bytes as a folder's config.json, beside the weights of a small llama: described or refused
 * with a sentence. */
#include "base/bytes.h"
#include "base/check.h"
#include "model/model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_files.h"

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
    struct buffer file = {0};
    const uint64_t length = header.size;
    buffer_add(&file, &length, sizeof length);
    buffer_add(&file, header.data, header.size);
    for (size_t i = 0; i < bytes; i++)
        buffer_add_char(&file, 0);
    fuzz_file_fill(1, (const uint8_t *)file.data, file.size);
    buffer_free(&file);
    buffer_free(&header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    static const char *folder;
    if (folder == NULL) {
        folder = fuzz_folder(names, ARRAY_COUNT(names));
        weights_write();
    }
    fuzz_file_fill(0, data, bytes);
    struct model_outline outline;
    struct error error = {0};
    if (model_outline_read(folder, &outline, &error) != STATUS_OK)
        CHECK(error.text[0] != '\0');
    else
        CHECK(outline.layers == 1 && outline.kv_heads * outline.head_dim == EMBEDDING / 2);
    return 0;
}
