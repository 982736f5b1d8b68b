/* Jinja as the templates of language models use it, in a sandbox.
 *
 * The nouns are `struct jinja`, a compiled template (immutable: any thread may render it), and
 * `struct jinja_run`, one rendering (one thread, over when jinja_render comes back). What a
 * template means is what jinja2 makes of it in the environment that transformers sets up:
 * ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, generation blocks.
 *
 * Every byte of the output knows whether it came out of the template or out of what was put in, so
 * that a tokenizer can look for control tokens in the former only. */
#ifndef BATON_MODEL_TEXT_JINJA_JINJA_H
#define BATON_MODEL_TEXT_JINJA_JINJA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/status.h"

struct jinja;
struct jinja_run;

enum {
    JINJA_SOURCE_BYTES_MAX = 1 << 20,
    JINJA_DEPTH_MAX = 200, /* of a template's blocks and brackets within one another */
};

/* What a rendering may take. A step is an expression, a statement, an item or 64 bytes of text. */
struct jinja_limits {
    uint64_t steps;        /* and one more for each 4 bytes of what is put in */
    uint32_t depth;        /* expressions, macros and values within one another */
    uint64_t memory_bytes; /* of all values, and eight times what is put in */
    uint64_t output_bytes; /* of the prompt */
};
extern const struct jinja_limits jinja_limits_default;

/* INVALID with line and column ("line 3, column 14: ..."), LIMIT for what is too large or deep.
 * The source is copied. */
enum status jinja_compile(const char *source, size_t bytes, struct jinja **out,
                          struct error *error);
/* The same from a file; failures begin with its path. */
enum status jinja_open(const char *path, struct jinja **out, struct error *error);
void jinja_free(struct jinja *template);
/* Its text, with the line ends that jinja2 makes of them. */
const char *jinja_source(const struct jinja *template, size_t *bytes_out);

/* What a template does with the content of a message, as far as its text tells. */
struct jinja_habits {
    bool content_parts;  /* it walks over the parts of a content */
    bool content_string; /* it asks whether a content is a string */
    bool developer;      /* it knows the role */
};
struct jinja_habits jinja_habits(const struct jinja *template);

/* A prompt: marks has a byte for each one of text, 1 where it came from what was put in. */
struct jinja_prompt {
    struct buffer text, marks;
};
void jinja_prompt_free(struct jinja_prompt *prompt);

/* Sets the variables of a run with the functions below. */
typedef void jinja_fill(struct jinja_run *run, void *arg);

/* input_bytes: about the size of what fill puts in. now_s: the time that strftime_now shows, in
 * seconds since 1970. INVALID is the template's or the input's fault, with the place in the
 * template, LIMIT a limit. The prompt is the caller's to free either way. */
enum status jinja_render(const struct jinja *template, const struct jinja_limits *limits,
                         size_t input_bytes, int64_t now_s, jinja_fill *fill, void *arg,
                         struct jinja_prompt *out, struct error *error);

/* For fill. Text of the host (bos_token) counts as the template's own, JSON as input. What is
 * given stays the caller's and must outlive the rendering. */
void jinja_set_json(struct jinja_run *run, const char *name, const struct json *value);
void jinja_set_text(struct jinja_run *run, const char *name, const char *text, size_t bytes);
void jinja_set_bool(struct jinja_run *run, const char *name, bool value);
void jinja_set_none(struct jinja_run *run, const char *name);
/* `messages`, an array of objects, in the form that the template expects: null members are left
 * out, arguments of tool calls are objects, text parts are one text unless it walks over parts.
 * Known roles count as the template's own text. */
struct jinja_message_style {
    bool parts;               /* lists of parts stay lists */
    bool wrap;                /* and a string becomes a list of one */
    bool developer_is_system; /* the template does not know the role */
    bool parse_arguments;     /* text that is JSON becomes what it says */
    bool parsed;              /* out: some did */
    const char *tag;          /* NULL, or what is put behind the last text */
};
void jinja_set_messages(struct jinja_run *run, const struct json *messages,
                        struct jinja_message_style *style);
/* All members of an object become variables. */
void jinja_set_members(struct jinja_run *run, const struct json *object);

#endif
