/* Reading a tokenizer.json, shared by the files that read its parts. Not for other folders. */
#ifndef BATON_MODEL_TEXT_TOKENIZER_JSON_INTERNAL_H
#define BATON_MODEL_TEXT_TOKENIZER_JSON_INTERNAL_H

#include "base/json.h"
#include "model/format/folder_file.h"
#include "model/text/text_internal.h"

/* Fills vocabulary, model and steps of text from the document; path is for messages and must stay
 * while text is opened. A step or model that Baton does not know is refused by its name. */
enum status tokenizer_json_read(struct text *text, const struct json *root, const char *path,
                                struct error *error);

/* The tokens by id, with their types; to be freed, their texts are the document's. */
enum status tokenizer_json_tokens(const struct json *root, const char *path,
                                  struct token_entry **tokens_out, uint64_t *count_out,
                                  struct error *error);

/* The parts "normalizer", "pre_tokenizer" and "decoder"; a null or absent one has no steps.
 * pre_tokenizer says by text->level whether the model sees bytes, so it comes first. */
enum status tokenizer_json_pretokenizer(struct text *text, const struct json *step,
                                        const char *path, struct error *error);
enum status tokenizer_json_normalizer(struct text *text, const struct json *step, const char *path,
                                      struct error *error);
enum status tokenizer_json_decoder(struct text *text, const struct json *step, const char *path,
                                   struct error *error);
/* "post_processor": which tokens it puts in front of and behind a text. After the vocabulary. */
enum status tokenizer_json_template(struct text *text, const struct json *step, const char *path,
                                    struct error *error);

/* Files of a folder; each path is for messages, of FOLDER_PATH_BYTES. *out is NULL when there is no
 * such file. */
enum status folder_tokenizer_read(const char *folder, char *path, struct json **out,
                                  struct digest128 *digest_out, struct error *error);
/* tokenizer_config.json and the like. */
enum status folder_config_read(const char *folder, const char *name, char *path, struct json **out,
                               struct error *error);
/* The chat template, as a file or in the config, which may be NULL; empty when there is none. */
enum status folder_template_read(const char *folder, const struct json *config, char *path,
                                 struct buffer *out, struct error *error);

/* Members of a step. A string: INVALID when absent or something else. */
enum status json_member_string(const struct json *object, const char *key, const char *path,
                               const char **out, size_t *bytes_out, struct error *error);
/* A bool, `otherwise` when absent or null. */
bool json_member_bool(const struct json *object, const char *key, bool otherwise);

#endif
