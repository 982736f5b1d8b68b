/* Model files for tests: tiny random ones written on the spot, edited copies of them, and the real
 * one where this machine has it. */
#ifndef BATON_TESTS_MODEL_TINY_MODEL_H
#define BATON_TESTS_MODEL_TINY_MODEL_H

#include <stdint.h>

#include "base/bytes.h"
#include "model/model.h"

/* Bytes of a file as `baton make-model` writes it; extra: one more option or NULL. */
struct buffer tiny_model_bytes(const char *arch, const char *type, const char *extra);
/* Writes bytes to a new file; the name is valid until the next call. tiny_model_unlink removes
 * it. */
const char *tiny_model_write(const struct buffer *bytes);
void tiny_model_unlink(void);

/* Edits of a file in memory. Each CHECKs that the key or tensor is there. */
void tiny_model_set_u32(struct buffer *bytes, const char *key, uint32_t value);
void tiny_model_set_f32(struct buffer *bytes, const char *key, float value);
/* Another name of the same length for a key or tensor. */
void tiny_model_rename(struct buffer *bytes, const char *from, const char *to);
/* One more key in front of the others. */
void tiny_model_add_u32(struct buffer *bytes, const char *key, uint32_t value);
void tiny_model_add_text(struct buffer *bytes, const char *key, const char *value);

/* Opens a file made by make-model with `options` (path is filled in); fails the test otherwise. */
struct model *tiny_model_open(const char *arch, const char *type, struct model_options options);
/* Opens edited bytes: the status, with the sentence in *error. A model that opens is closed. */
enum status tiny_model_try(const struct buffer *bytes, struct error *error);

/* Pages for a sequence of `tokens` tokens. */
void tiny_model_take(struct model *model, uint32_t tokens, uint32_t *slots_out);
void tiny_model_give(struct model *model, uint32_t tokens, const uint32_t *slots);

/* Logits of every row of one sequence, [count][vocabulary], computed in f32; the caller frees
 * them. */
float *tiny_model_logits(const char *path, const int32_t *ids, uint32_t count);

/* The real model's path, and that of Gemma 3 270M (BATON_GEMMA_MODEL names another place); NULL
 * where there is none. The folder of reference data. */
const char *real_model_path(void);
const char *gemma_model_path(void);
const char *shared_folder(void);

#endif
