/* A request body of the API: parsed, every field checked, the prompt tokenised.
 *
 * Runs on a text thread. Unknown fields are ignored, null means not set; a field that is known but
 * not supported is refused by name instead of being ignored silently. */
#ifndef BATON_ROUTER_OPENAI_REQUEST_H
#define BATON_ROUTER_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/json.h"
#include "model/text/text.h"
#include "router/openai_error.h"
#include "router/openai_grammar.h"
#include "router/openai_sampling.h"
#include "router/openai_tools.h"
#include "router/stop_match.h"

enum openai_endpoint { OPENAI_COMPLETIONS, OPENAI_CHAT };

/* Below it sampling is greedy (model/sampler.h). */
#define OPENAI_GREEDY_BELOW 1e-5f

enum {
    OPENAI_CHOICES_MAX = 16,
    OPENAI_PROMPTS_MAX = 64,
    OPENAI_ANSWERS_MAX = 256, /* choices of all prompts */
    OPENAI_STOP_IDS_MAX = 128,
    OPENAI_TOP_LOGPROBS_MAX = 20,
    OPENAI_MESSAGES_MAX = 4096,
    /* What an answer repeats of prompts, of all of them and in all choices together: how likely
     * tokens were, each with its alternatives a score, their ids, each as much, and text. */
    OPENAI_SCORES_MAX = 262144,
    OPENAI_ECHO_BYTES_MAX = 16777216,
    OPENAI_CACHE_SALT_MAX = 128, /* characters */
    OPENAI_PRIORITY_MAX = 1000000
};

struct openai_request {
    enum openai_endpoint endpoint;
    const struct openai_rules *rules; /* of its model, among those it was parsed with */
    struct token_list prompt;
    uint32_t max_tokens, min_tokens; /* max_tokens fits behind the prompt */
    struct openai_sampling sampling;
    struct openai_grammar grammar; /* what the answer has to be */
    struct openai_tools tools;     /* of chat */
    uint32_t choices;              /* 1 to OPENAI_CHOICES_MAX */
    bool ignore_eos;
    struct token_list stop_ids;
    struct stop_set stops;
    bool include_stop, skip_special;
    bool logprobs;
    uint32_t top_logprobs;
    bool stream, include_usage, continuous_usage, timings;
    /* Of the prompt's own tokens: 0, or 1 and alternatives of each; for echo_scores, which are told
     * as if the prompt were part of the answer, or for prompt_scores, which stand beside it with
     * prompt_logprobs alternatives. */
    uint32_t scores, prompt_logprobs;
    bool echo_scores, prompt_scores;
    bool prompt_only; /* max_tokens is 0, though workers are asked for a token, which is not told */
    bool echo;        /* the answer begins with echo_text */
    struct buffer echo_text;
    bool return_token_ids;
    bool token_ids_as_text; /* log-probabilities name tokens as token_id:7 */
    uint64_t cache_salt;    /* 0: none. Else prompts are found in caches under the same one only */
    int32_t priority;       /* lower is more urgent, as elsewhere; 0 is usual */
    /* [more_count] for the further prompts of a completion, each as if it had come alone. */
    struct openai_request *more;
    uint32_t more_count;
};

/* Of a model that is served; those of all of them are a list. */
struct openai_rules {
    const struct openai_rules *next; /* NULL: the last model */
    const struct text *text;
    const char *model_name;
    uint32_t model; /* for who made the list, like page_tokens */
    uint32_t context_tokens;
    uint32_t page_tokens;        /* of its workers' caches; 0: none is there */
    uint32_t default_max_tokens; /* of chat; 0: as much as there is room */
    struct tool_manner tools;
    const struct jinja *template;     /* of chats, instead of the model's own; or NULL */
    bool trust_template;              /* requests may bring one */
    struct openai_grammars *grammars; /* that were compiled before; NULL: none */
};

enum { OPENAI_COMPLETIONS_MAX_TOKENS = 16 }; /* default of /v1/completions, as everywhere */

/* rules: the first model's, which is that of requests that name none. On failure *error is what the
 * client gets, and *out holds nothing but the model that was asked for, if one was found. */
enum status openai_request_parse(enum openai_endpoint endpoint, const char *body, size_t bytes,
                                 const struct openai_rules *rules, struct openai_request *out,
                                 struct openai_error *error);
/* What /tokenize and /detokenize ask of a body as well. */
enum status openai_body_parse(const char *body, size_t bytes, struct json **root_out,
                              struct openai_error *error);
/* The rules of the model that `model` names, of the first one where it is not set; else a 404. */
enum status openai_model_find(const struct json *body, const struct openai_rules *rules,
                              const struct openai_rules **rules_out, struct openai_error *error);
/* That 404. name: as it is to be shown. */
enum status openai_model_unknown(const char *name, const struct openai_rules *rules,
                                 struct openai_error *error);
void openai_request_free(struct openai_request *request);

#endif
