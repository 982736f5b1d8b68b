/* config.json: what is refused, by name. The folder has no weights worth the name: what is said of
 * hyperparameters comes first. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/model.h"
#include "tests/model/format/model_folder.h"

/* A llama is whole with these; another model_type and more keys come behind it. */
#define SIZES                                                                                      \
    "\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":16,"      \
    "\"max_position_embeddings\":64,\"intermediate_size\":64"
#define EPSILON "\"rms_norm_eps\":1e-6,"
#define GEMMA   EPSILON "\"sliding_window\":8,\"head_dim\":8,\"query_pre_attn_scalar\":8"
#define MOE     "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

struct refusal {
    const char *model_type, *keys, *words;
};

static const struct refusal refusals[] = {
    {"deepseek_v3", "", "'deepseek_v3' is not one Baton knows"},
    {"llama", "\"first_k_dense_replace\":3", "'first_k_dense_replace'"},
    {"llama", "\"rope_theta\":1e-300", "'rope_theta' in config.json is 1e-300"},
    {"llama", "\"rms_norm_eps\":1e-60", "'rms_norm_eps'"},
    {"llama", "\"partial_rotary_factor\":0.5", "'partial_rotary_factor'"},
    {"llama", "\"mlp_only_layers\":[1]", "'mlp_only_layers'"},
    {"mixtral", EPSILON "\"rope_theta\":1e6,\"decoder_sparse_step\":2", "'decoder_sparse_step'"},
    {"llama", "\"no_rope_layers\":[1,0]", "'no_rope_layers'"},
    {"qwen3_moe", MOE ",\"mlp_only_layers\":[2]", "is no layer of 2"},
    {"qwen3_moe", MOE ",\"mlp_only_layers\":[\"x\"]", "is no layer of 2"},
    {"qwen3_moe", MOE ",\"mlp_only_layers\":1", "it must be a list of layers"},
    {"qwen3_moe", MOE ",\"decoder_sparse_step\":0", "from 1 to 1024"},
    {"mistral", "", "has no 'sliding_window'"},
    {"gemma3_text", EPSILON "\"head_dim\":8,\"query_pre_attn_scalar\":8",
     "has no 'sliding_window'"},
    {"mixtral", "\"rope_theta\":1e6", "has no 'rms_norm_eps'"},
    {"mixtral", "\"rms_norm_eps\":1e-5", "has no 'rope_theta'"},
    {"gemma3_text", GEMMA, "has no 'rope_theta'"},
    {"gemma2", "\"sliding_window\":8,\"head_dim\":8", "has no 'query_pre_attn_scalar'"},
    {"gemma2", GEMMA ",\"final_logit_softcapping\":0", "'final_logit_softcapping'"},
    {"gemma2", GEMMA ",\"hidden_activation\":\"silu\"", "'hidden_activation'"},
    {"llama", "\"layer_types\":[\"full_attention\",\"linear_attention\"]", "'linear_attention'"},
    {"llama", "\"layer_types\":[\"full_attention\"]", "a list of 2 names"},
    {"qwen3", "\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
     "'layer_types' in config.json is of layers with a window that has no size"},
    {"qwen3",
     "\"use_sliding_window\":true,\"sliding_window\":8,"
     "\"layer_types\":[\"full_attention\",\"sliding_attention\"],"
     "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4},"
     "\"sliding_attention\":{\"rope_theta\":1e6}}",
     "'rope_parameters' in config.json is another for each type of layer"},
    {"gemma3_text", GEMMA ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}",
     "has no 'sliding_attention'"},
    {"gemma3_text",
     GEMMA ",\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{},\"other\":{}}",
     "of other types of layers"},
    {"llama", "\"rope_scaling\":{\"rope_type\":\"longrope\"}", "'longrope'"},
    {"llama", "\"rope_scaling\":{\"rope_type\":\"default\"},\"rope_parameters\":{}",
     "beside 'rope_parameters'"},
    {"qwen2", "\"use_sliding_window\":true", "has no 'sliding_window'"},
    {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":8", "has no 'max_window_layers'"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}", "is 'gptq'"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"awq\"}", "is 'awq'"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}", "is 'bitsandbytes'"},
    {"llama", "\"quantization_config\":{\"bits\":4}", "has no 'quant_method'"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", "is 'e5m2'"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}",
     "a list of two integers"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,0]}",
     "item 1 of 'weight_block_size'"},
    {"llama",
     "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-"
     "quantized\"}",
     "is 'pack-quantized'"},
    {"llama",
     "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"a\":"
     "{\"weights\":{\"type\":\"int\",\"num_bits\":8}}}}",
     "is 'int'"},
    {"llama", "\"rope_scaling\":{\"mrope_section\":[1,2]}", "'mrope_section' in rope_scaling"},
    {"llama", "\"rope_parameters\":{\"partial_rotary_factor\":0.25}", "'partial_rotary_factor'"},
};

static enum status try(const char *model_type, const char *keys, struct error *error)
{
    char config[1024];
    struct model_outline outline;
    const char *folder = model_folder_make();
    CHECK(snprintf(config, sizeof config, "{\"model_type\":\"%s\"," SIZES "%s%s}", model_type,
                   keys[0] == 0 ? "" : ",", keys) < (int)sizeof config);
    model_folder_write_text("config.json", config);
    model_folder_write_tensors(
        "model.safetensors", 0,
        "{\"none\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    const enum status status = model_outline_read(folder, &outline, error);
    model_folder_remove();
    return status;
}

Test(net_folder, what_is_not_computed_is_refused_by_name)
{
    for (size_t i = 0; i < ARRAY_COUNT(refusals); i++) {
        struct error error = {0};
        const struct refusal *r = &refusals[i];
        cr_assert_neq(try(r->model_type, r->keys, &error), STATUS_OK);
        cr_assert_not_null(strstr(error.text, r->words), "%s %s: '%s' says nothing of '%s'",
                           r->model_type, r->keys, error.text, r->words);
    }
}

/* The other half of it: the same keys where they change nothing get as far as the tensors. */
Test(net_folder, what_changes_nothing_is_no_reason)
{
    static const struct refusal fine[] = {
        {"llama", "", ""},
        {"llama", "\"decoder_sparse_step\":1,\"mlp_only_layers\":[]", ""},
        {"llama", "\"rope_scaling\":null,\"partial_rotary_factor\":1.0,\"sliding_window\":null",
         ""},
        {"llama", "\"rope_parameters\":{\"rope_type\":\"default\",\"factor\":null}", ""},
        {"mistral", "\"sliding_window\":null", ""},
        {"qwen3_moe", MOE ",\"mlp_only_layers\":[0],\"decoder_sparse_step\":2", ""},
        {"qwen3",
         "\"use_sliding_window\":true,\"sliding_window\":8,"
         "\"layer_types\":[\"full_attention\",\"sliding_attention\"],"
         "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4},"
         "\"sliding_attention\":{\"rope_theta\":1e4}}",
         ""},
        {"gemma2", GEMMA ",\"final_logit_softcapping\":null", ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(fine); i++) {
        struct error error = {0};
        cr_assert_eq(try(fine[i].model_type, fine[i].keys, &error), STATUS_UNSUPPORTED);
        cr_assert_not_null(strstr(error.text, "tensor 'none' has no place"), "%s: %s", fine[i].keys,
                           error.text);
    }
}
