/* Tool calls in a model's answer: text in, calls and the text around them out.
 *
 * Text is fed piece by piece. What can no longer be part of a call comes out at once; a call begins
 * when its name is known to be one of the tools and its arguments have opened, and from then on the
 * arguments come out as the model writes them, byte for byte. The result does not depend on how the
 * text was cut: what a stream brings together is what the whole text gives.
 *
 * What looks like a call and is none (no JSON, a name that is no tool's) is text, as it was
 * written. A call that breaks off after it began stays, with the arguments so far and `complete`
 * unset, and what follows is text again. Blanks that stand between calls, or between them and an
 * end of the answer, belong to neither. Pure; one thread at a time. */
#ifndef BATON_ROUTER_TOOL_CALLS_H
#define BATON_ROUTER_TOOL_CALLS_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/json_scan.h"
#include "router/tool_style.h"

enum {
    TOOL_NAME_BYTES_MAX = 64,
    TOOL_CALLS_MAX = 128, /* of an answer; what follows is text */
    TOOL_ID_BYTES = 32
};
#define TOOL_MARK_ARGUMENTS "[ARGS]" /* between a bare name and its arguments */
#define TOOL_MARK_ID        "[CALL_ID]"

/* The names an answer may call; terminated. */
struct tool_names {
    char (*items)[TOOL_NAME_BYTES_MAX + 1];
    uint32_t count;
};
bool tool_names_have(const struct tool_names *names, const char *name, size_t bytes);

struct tool_call {
    char id[TOOL_ID_BYTES];
    char name[TOOL_NAME_BYTES_MAX + 1];
    struct buffer arguments;
    size_t arguments_taken; /* of them, what tool_calls_take was told of */
    bool begin_taken;       /* and whether it was told of the call at all */
    bool complete;
};

enum tool_part {
    TOOL_PART_TEXT,
    TOOL_PART_MARK,       /* in what may become a mark */
    TOOL_PART_OPEN,       /* behind the opening mark */
    TOOL_PART_ITEM,       /* in an array, before a call */
    TOOL_PART_AFTER_ITEM, /* in an array, behind a call */
    TOOL_PART_AFTER_CALL, /* behind a call that is the whole answer */
    TOOL_PART_SEPARATED,  /* and then a semicolon */
    TOOL_PART_OBJECT,     /* in a call's object */
    TOOL_PART_NAME,       /* in a bare name */
    TOOL_PART_NAME_MARK,  /* behind it, in what may become a mark */
    TOOL_PART_ID,
    TOOL_PART_ARGUMENTS_OPEN,
    TOOL_PART_ARGUMENTS, /* of a bare name */
    TOOL_PART_REST,      /* nothing is looked for any more */
    TOOL_PART_COUNT
};

enum tool_field { TOOL_FIELD_OTHER, TOOL_FIELD_NAME, TOOL_FIELD_ARGUMENTS };

struct tool_calls {
    const struct tool_syntax *syntax;
    const struct tool_names *names; /* outlive it */
    uint64_t id_seed;
    uint32_t told_max; /* calls behind these are left out */

    struct buffer content;   /* text that is free to go, not taken yet */
    struct tool_call *calls; /* [count] */
    uint32_t count, capacity;

    enum tool_part part;
    struct buffer held;  /* text of what is not yet a call, nor text */
    struct buffer blank; /* and of blanks that may turn out to be between calls */
    bool edge;           /* nothing but blanks since the beginning or the latest call */
    bool in_list;        /* the call is one of an array */
    uint32_t seen;       /* calls that began, with those left out */

    /* The call being read. */
    struct json_scan scan;
    enum tool_field field;
    char key[TOOL_NAME_BYTES_MAX], name[TOOL_NAME_BYTES_MAX];
    size_t key_bytes, name_bytes;
    bool name_known, arguments_seen, begun;
    struct buffer early; /* arguments that came before the name */
    int32_t current;     /* of calls; -1: it is left out */
};

/* told_max: 1 where the client wants one call at most. */
void tool_calls_init(struct tool_calls *calls, enum tool_style style,
                     const struct tool_names *names, uint32_t told_max, uint64_t id_seed);
void tool_calls_free(struct tool_calls *calls);
void tool_calls_feed(struct tool_calls *calls, const char *text, size_t bytes);
/* The text is over. */
void tool_calls_finish(struct tool_calls *calls);
/* Whether there is anything that was not taken. */
bool tool_calls_ready(const struct tool_calls *calls);
/* Whether a call has begun or gained arguments since. */
bool tool_calls_grown(const struct tool_calls *calls);
/* Content and the new parts of calls have been sent. */
void tool_calls_take(struct tool_calls *calls);
/* Whether the answer ends as one with calls: at least one is complete, and where it was cut off
 * (cut), none is broken. */
bool tool_calls_end(const struct tool_calls *calls, bool cut);

#endif
