#!/usr/bin/env python3
"""Writes the cases of variants/: tiny models in the corners of the architectures, with the logits
that transformers computes for them in float32. A case has no weights: each tensor is filled from
its name by the formula of `filled`, here and in variant_folder.c.

    make_variants.py variants [SCRATCH]

needs torch and transformers.
"""
import json
import pathlib
import sys

import numpy
import torch
import transformers

VOCAB = 48
COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=4,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
              rms_norm_eps=1e-6, head_dim=8, bos_token_id=1, eos_token_id=2, pad_token_id=0)
MOE = dict(COMMON, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
GEMMA = dict(COMMON, sliding_window=6, query_pre_attn_scalar=8)
THETA = {"rope_type": "default", "rope_theta": 10000.0}

CASES = {
    "llama-biases": ("llama", dict(COMMON, attention_bias=True, mlp_bias=True)),
    "llama-tied": ("llama", dict(COMMON, tie_word_embeddings=True)),
    "qwen2-upper-window": ("qwen2", dict(COMMON, use_sliding_window=True, sliding_window=5,
                                         max_window_layers=2)),
    "qwen2-layer-types": ("qwen2", dict(COMMON, use_sliding_window=True, sliding_window=5,
                                        layer_types=["sliding_attention", "full_attention",
                                                     "full_attention", "sliding_attention"])),
    "qwen2-moe-step": ("qwen2_moe", dict(MOE, shared_expert_intermediate_size=48,
                                         decoder_sparse_step=2)),
    "qwen2-moe-no-bias": ("qwen2_moe", dict(MOE, shared_expert_intermediate_size=48,
                                            qkv_bias=False)),
    "qwen3-bias": ("qwen3", dict(COMMON, attention_bias=True)),
    "qwen3-moe-only": ("qwen3_moe", dict(MOE, mlp_only_layers=[0, 3], norm_topk_prob=True)),
    "gemma2": ("gemma2", dict(GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma2-uncapped": ("gemma2", dict(GEMMA, attn_logit_softcapping=None,
                                       final_logit_softcapping=None)),
    "gemma3-cap": ("gemma3_text", dict(GEMMA, final_logit_softcapping=4.0)),
    "gemma3-scaled": ("gemma3_text", dict(GEMMA, head_dim=16)),
    "gemma3-untied": ("gemma3_text", dict(GEMMA, tie_word_embeddings=False,
                                          num_hidden_layers=8)),
    "gemma3-rotations": ("gemma3_text", dict(
        GEMMA, num_hidden_layers=5,
        layer_types=["sliding_attention", "full_attention", "sliding_attention",
                     "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4,
                                  "original_max_position_embeddings": 16}})),
    "gpt2-untied": ("gpt2", dict(vocab_size=VOCAB, n_embd=32, n_layer=3, n_head=4,
                                 n_positions=128, tie_word_embeddings=False, bos_token_id=1,
                                 eos_token_id=2)),
}


def filled(name, count, scale, offset):
    """offset + scale * (what a hash of name and place gives in [-1, 1))."""
    mask = 0xFFFFFFFF
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & mask
    x = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + seed) & mask
    x ^= x >> 16
    x = x * 0x85EBCA6B & mask
    x ^= x >> 13
    x = x * 0xC2B2AE35 & mask
    x ^= x >> 16
    unit = (x >> 8).astype(numpy.float32) / numpy.float32(1 << 23) - numpy.float32(1)
    return numpy.float32(offset) + numpy.float32(scale) * unit


def amounts(name, shape, gains_less_one):
    """Scale and offset of a tensor; heads are larger, so that logits differ by about 2."""
    if len(shape) == 1:
        gain = "norm" in name or "ln_" in name
        bias = name.endswith(".bias")
        return 0.25, 1.0 if gain and not bias and not gains_less_one else 0.0
    if "embed_tokens" in name or "wte" in name or "lm_head" in name:
        return 0.5, 0.0
    return 0.375, 0.0


def on_disk(model, folder):
    """Names and shapes as save_pretrained writes them."""
    from safetensors import safe_open
    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}


def write_case(out, name, kind, settings, scratch):
    from safetensors.torch import save_file
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **settings)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config)
    folder = scratch / name
    tensors = []
    values = {}
    for tensor, shape in sorted(on_disk(model, folder).items()):
        scale, offset = amounts(tensor, shape, kind.startswith("gemma"))
        tensors.append([tensor, shape, scale, offset])
        flat = filled(tensor, int(numpy.prod(shape)), scale, offset)
        values[tensor] = torch.from_numpy(flat.reshape(shape))
    save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = [(i * i * 7 + 3 * i + 5) % VOCAB for i in range(24)]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("transformers_version", None)
    settings.pop("dtype", None)
    (out / f"{name}.config.json").write_text(json.dumps(settings, indent=1) + "\n")
    rows = (3, len(ids) - 1)
    case = {"tensors": tensors, "ids": ids, "rows": rows,
            "logits": [[round(value, 5) for value in logits[row].tolist()] for row in rows]}
    print(name, "standard deviation", float(logits.std()))
    lines = ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in case.items())
    (out / f"{name}.json").write_text("{\n" + lines + "\n}\n")


def main():
    out = pathlib.Path(sys.argv[1])
    scratch = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "variants.tmp")
    out.mkdir(exist_ok=True)
    for name, (kind, settings) in CASES.items():
        write_case(out, name, kind, settings, scratch)


if __name__ == "__main__":
    main()
