#include "router/router_metrics.h"

#include <string.h>

#include "base/check.h"

/* Seconds and tokens. Each set holds all bounds that dashboards made for other servers ask for, and
 * finer ones below, where small models live. */
static const double first_token_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                            0.15,  0.25,   0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                            20,    40,     80,    160,  640,  2560, 0};
static const double token_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075,
                                      0.1,   0.15,   0.2,   0.3,  0.4,   0.5,   0.75, 1,
                                      2.5,   5,      7.5,   10,   20,    40,    80,   0};
static const double latency_bounds[] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1,   1.5,  2,    2.5,
    5,     10,     15,    20,   30,    40,   50,  60,  120, 240, 480, 960, 1920, 7680, 0};
static const double count_bounds[] = {1,    2,    5,     10,    20,    50,  100, 200, 500, 1000,
                                      2000, 5000, 10000, 20000, 50000, 1e5, 2e5, 5e5, 1e6, 0};
static const double byte_bounds[] = {65536,    262144,    1048576,    4194304,    16777216,
                                     67108864, 268435456, 1073741824, 4294967296, 0};
static const double choice_bounds[] = {1, 2, 4, 8, 16, 0};

#define REQUESTS      "baton_requests_total"
#define REQUESTS_HELP "Requests to the completion endpoints that ended, by class of answer."
#define FINISH        "baton_request_finish_total"
#define FINISH_HELP   "Requests accepted that ended, by how."
#define PLACED        "baton_placements_total"
#define PLACED_HELP                                                                                \
    "Decisions of placement, by their reason; short: of the pairs, those whose decode node read "  \
    "the prompt; full: requests that had to wait, once each."
#define REFUSED "baton_admission_refusals_total"
#define REFUSED_HELP                                                                               \
    "Requests refused while nothing was wrong with them, by whose limit it was: of the time to "   \
    "the first token, the client's deadline, the time between tokens, the queue, all there may "   \
    "be at once, the client's key."
#define WORKERS      "baton_workers"
#define WORKERS_HELP "Workers known, by role and state."
#define PAGES        "baton_kv_pages"
#define PAGES_HELP                                                                                 \
    "KV pages of workers that are up: free or only in the prefix cache; granted to, moving in or " \
    "pinned by hand-offs; in use otherwise."
#define PREFIX_PAGES      "baton_prefix_pages"
#define PREFIX_PAGES_HELP "KV pages in the prefix cache, those in use included."
#define STATES            "baton_requests"
#define STATES_HELP       "Requests accepted and not yet ended, by state."
#define ERRORS            "baton_errors_total"
#define ERRORS_HELP       "Errors told to clients, by their code."
#define STAGES            "baton_time_to_first_token_stage_seconds"
#define STAGES_HELP                                                                                \
    "The time to the first token by stage: tokenise, queue for a place, reserve pages, prefill "   \
    "to the token."

#define HANDOFFS            "baton_handoffs_total"
#define HANDOFFS_HELP       "Hand-offs that ended, by the end that tells and how."
#define HANDOFF_MOVED       "baton_handoff_moved_bytes_total"
#define HANDOFF_MOVED_HELP  "KV bytes sent (prefill) and verified in place (decode)."
#define HANDOFF_BUSY        "baton_handoff_busy_seconds_total"
#define HANDOFF_BUSY_HELP   "Time in which pages were moving."
#define HANDOFF_OPEN        "baton_handoffs_open"
#define HANDOFF_OPEN_HELP   "Hand-offs open now."
#define HANDOFF_OLDEST      "baton_handoff_oldest_seconds"
#define HANDOFF_OLDEST_HELP "How long pages have been pinned or granted, the oldest now."
#define WAITS               "baton_prefill_waits_total"
#define WAITS_HELP          "Prompts that waited for KV pages of a prefill node, by who held them."

#define GRAMMAR_REQUESTS      "baton_grammar_requests_total"
#define GRAMMAR_REQUESTS_HELP "Requests whose answer had a grammar and that ended, by its kind."

#define PREFIX_HITS             "baton_prefix_hits_total"
#define PREFIX_HITS_HELP        "Prompts whose beginning was in the prefix cache."
#define PREFIX_MISSES           "baton_prefix_misses_total"
#define PREFIX_MISSES_HELP      "Prompts of which nothing was in the prefix cache."
#define PREFIX_HIT_TOKENS       "baton_prefix_hit_tokens_total"
#define PREFIX_HIT_TOKENS_HELP  "Prompt tokens that were in the prefix cache."
#define PREFIX_MISS_TOKENS      "baton_prefix_miss_tokens_total"
#define PREFIX_MISS_TOKENS_HELP "Prompt tokens that were not in the prefix cache."
#define PREFIX_INSERTED         "baton_prefix_inserted_pages_total"
#define PREFIX_INSERTED_HELP    "KV pages added to the prefix cache."
#define PREFIX_EVICTED          "baton_prefix_evicted_pages_total"
#define PREFIX_EVICTED_HELP     "KV pages that left the prefix cache to make room."

/* A series of a family with labels. */
#define SERIES(family, kind, labels)                                                               \
    {                                                                                              \
        family, labels, kind, family##_HELP, NULL                                                  \
    }

/* One of the times that add up to the one to the first token. */
#define STAGE(name)                                                                                \
    {                                                                                              \
        STAGES, "stage=\"" name "\"", METRIC_HISTOGRAM, STAGES_HELP, first_token_bounds            \
    }

/* clang-format off */
static const struct metric_row rows[ROUTER_METRIC_COUNT] = {
    [METRIC_REQUESTS_OK] =
        SERIES(REQUESTS, METRIC_COUNTER, "code=\"2xx\""),
    [METRIC_REQUESTS_BAD] =
        SERIES(REQUESTS, METRIC_COUNTER, "code=\"4xx\""),
    [METRIC_REQUESTS_FAULT] =
        SERIES(REQUESTS, METRIC_COUNTER, "code=\"5xx\""),
    [METRIC_REQUESTS_CANCELLED] =
        SERIES(REQUESTS, METRIC_COUNTER, "code=\"none\""),
    [METRIC_FINISH_STOP] =
        SERIES(FINISH, METRIC_COUNTER, "reason=\"stop\""),
    [METRIC_FINISH_LENGTH] =
        SERIES(FINISH, METRIC_COUNTER, "reason=\"length\""),
    [METRIC_FINISH_STOP_STRING] =
        SERIES(FINISH, METRIC_COUNTER, "reason=\"stop_string\""),
    [METRIC_FINISH_ERROR] =
        SERIES(FINISH, METRIC_COUNTER, "reason=\"error\""),
    [METRIC_FINISH_CANCELLED] =
        SERIES(FINISH, METRIC_COUNTER, "reason=\"cancelled\""),
    [METRIC_ERRORS + 0] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"invalid_request\""),
    [METRIC_ERRORS + 1] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"model_not_found\""),
    [METRIC_ERRORS + 2] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"context_length_exceeded\""),
    [METRIC_ERRORS + 3] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"unsupported_value\""),
    [METRIC_ERRORS + 4] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"not_found\""),
    [METRIC_ERRORS + 5] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"method_not_allowed\""),
    [METRIC_ERRORS + 6] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"bad_content_type\""),
    [METRIC_ERRORS + 7] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"overloaded\""),
    [METRIC_ERRORS + 8] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"shutting_down\""),
    [METRIC_ERRORS + 9] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"no_workers\""),
    [METRIC_ERRORS + 10] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"worker_unavailable\""),
    [METRIC_ERRORS + 11] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"worker_lost\""),
    [METRIC_ERRORS + 12] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"worker_fault\""),
    [METRIC_ERRORS + 13] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"deadline_exceeded\""),
    [METRIC_ERRORS + 14] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"deadline_unattainable\""),
    [METRIC_ERRORS + 15] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"ttft_target\""),
    [METRIC_ERRORS + 16] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"tpot_target\""),
    [METRIC_ERRORS + 17] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"rate_limit_exceeded\""),
    [METRIC_ERRORS + 18] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"invalid_api_key\""),
    [METRIC_ERRORS + 19] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"permission_denied\""),
    [METRIC_ERRORS + 20] =
        SERIES(ERRORS, METRIC_COUNTER, "code=\"other\""),
    [METRIC_PLACED_PAIR] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"pair\""),
    [METRIC_PLACED_LOCAL] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"local\""),
    [METRIC_PLACED_UNPAIRED] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"unpaired\""),
    [METRIC_PLACED_SHORT] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"short\""),
    [METRIC_PLACED_ONE_TOKEN] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"one_token\""),
    [METRIC_PLACED_NO_DECODE] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"no_decode\""),
    [METRIC_PLACED_FULL] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"full\""),
    [METRIC_PLACED_TOO_LONG] =
        SERIES(PLACED, METRIC_COUNTER, "reason=\"too_long\""),
    [METRIC_REFUSED_TTFT] =
        SERIES(REFUSED, METRIC_COUNTER, "reason=\"ttft\""),
    [METRIC_REFUSED_DEADLINE] =
        SERIES(REFUSED, METRIC_COUNTER, "reason=\"deadline\""),
    [METRIC_REFUSED_TPOT] =
        SERIES(REFUSED, METRIC_COUNTER, "reason=\"tpot\""),
    [METRIC_REFUSED_QUEUE] =
        SERIES(REFUSED, METRIC_COUNTER, "reason=\"queue\""),
    [METRIC_REFUSED_CAPACITY] =
        SERIES(REFUSED, METRIC_COUNTER, "reason=\"capacity\""),
    [METRIC_REFUSED_KEY] =
        SERIES(REFUSED, METRIC_COUNTER, "reason=\"key\""),
    [METRIC_PLACED_CACHED_TOKENS] =
        {"baton_placement_cached_tokens_total", NULL, METRIC_COUNTER,
         "Prompt tokens that placement expected in the prefix cache of the prefill node.", NULL},
    [METRIC_PREFILL_RETRIES] =
        {"baton_prefill_retries_total", NULL, METRIC_COUNTER,
         "Prefill nodes that failed a request before its first token, so that it went to another.",
         NULL},
    [METRIC_READ_BYTES] = {"baton_http_read_bytes", NULL, METRIC_GAUGE,
                           "Bytes that have come of request bodies that are not whole yet.", NULL},
    [METRIC_INFLIGHT] = {"baton_requests_inflight", NULL, METRIC_GAUGE,
        "Requests accepted and not yet ended.", NULL},
    [METRIC_QUEUED] = {"baton_requests_queued", NULL, METRIC_GAUGE,
        "Requests that wait for room on a decode node.", NULL},
    [METRIC_STATES + 0] =
        SERIES(STATES, METRIC_GAUGE, "state=\"tokenising\""),
    [METRIC_STATES + 1] =
        SERIES(STATES, METRIC_GAUGE, "state=\"queued\""),
    [METRIC_STATES + 2] =
        SERIES(STATES, METRIC_GAUGE, "state=\"reserving\""),
    [METRIC_STATES + 3] =
        SERIES(STATES, METRIC_GAUGE, "state=\"prefilling\""),
    [METRIC_STATES + 4] =
        SERIES(STATES, METRIC_GAUGE, "state=\"decoding\""),
    [METRIC_STATES + 5] =
        SERIES(STATES, METRIC_GAUGE, "state=\"reporting\""),
    [METRIC_PROMPT_TOKENS] = {"baton_prompt_tokens_total", NULL, METRIC_COUNTER,
        "Prompt tokens of requests handed to workers.", NULL},
    [METRIC_PROMPT_TOKENS_CACHED] = {"baton_prompt_tokens_cached_total", NULL, METRIC_COUNTER,
        "Of them, tokens whose KV pages were there already.", NULL},
    [METRIC_OUTPUT_TOKENS] = {"baton_output_tokens_total", NULL, METRIC_COUNTER,
        "Tokens accepted from workers.", NULL},
    [METRIC_TTFT] = {"baton_time_to_first_token_seconds", NULL, METRIC_HISTOGRAM,
        "Request received to first token.", first_token_bounds},
    [METRIC_TTFT_TOKENISE] =
        STAGE("tokenise"),
    [METRIC_TTFT_QUEUE] =
        STAGE("queue"),
    [METRIC_TTFT_RESERVE] =
        STAGE("reserve"),
    [METRIC_TTFT_PREFILL] =
        STAGE("prefill"),
    [METRIC_ITL] = {"baton_inter_token_latency_seconds", NULL, METRIC_HISTOGRAM,
        "Gap between two tokens of one answer.", token_bounds},
    [METRIC_TPOT] = {"baton_time_per_output_token_seconds", NULL, METRIC_HISTOGRAM,
        "First token to last, over the tokens behind the first.", token_bounds},
    [METRIC_REQUEST_TIME] = {"baton_request_duration_seconds", NULL, METRIC_HISTOGRAM,
        "Request received to the end of its answer.", latency_bounds},
    [METRIC_QUEUE_TIME] = {"baton_queue_time_seconds", NULL, METRIC_HISTOGRAM,
        "Request received to its pages being reserved.", latency_bounds},
    [METRIC_SERVED_TIME] = {"baton_served_time_seconds", NULL, METRIC_HISTOGRAM,
        "Pages reserved to the last token.", latency_bounds},
    [METRIC_ANSWER_TIME] = {"baton_answer_time_seconds", NULL, METRIC_HISTOGRAM,
        "First token to the last.", latency_bounds},
    [METRIC_PROMPT_LENGTH] = {"baton_request_prompt_tokens", NULL, METRIC_HISTOGRAM,
        "Length of prompts.", count_bounds},
    [METRIC_OUTPUT_LENGTH] = {"baton_request_output_tokens", NULL, METRIC_HISTOGRAM,
        "Length of answers, all choices together.", count_bounds},
    [METRIC_MAX_TOKENS] = {"baton_request_max_tokens", NULL, METRIC_HISTOGRAM,
        "Longest answer that was allowed.", count_bounds},
    [METRIC_CHOICES] = {"baton_request_choices", NULL, METRIC_HISTOGRAM,
        "Answers asked for to one prompt.", choice_bounds},
    [METRIC_PREFILL_QUEUE_TIME] = {"baton_prefill_queue_time_seconds", NULL, METRIC_HISTOGRAM,
        "Job received to first chunk, as prefill nodes report.", latency_bounds},
    [METRIC_PREFILL_TIME] = {"baton_prefill_time_seconds", NULL, METRIC_HISTOGRAM,
        "First chunk to first token, as prefill nodes report.", latency_bounds},
    [METRIC_DECODE_QUEUE_TIME] = {"baton_decode_queue_time_seconds", NULL, METRIC_HISTOGRAM,
        "All pages landed to first step, as decode nodes report.", latency_bounds},
    [METRIC_HANDOFF_TIME] = {"baton_handoff_time_seconds", NULL, METRIC_HISTOGRAM,
        "First page sent to all landed, as prefill nodes report.", latency_bounds},
    [METRIC_HANDOFF_WAIT_TIME] = {"baton_handoff_wait_time_seconds", NULL, METRIC_HISTOGRAM,
        "First token to all pages landed: what the compute did not hide.", latency_bounds},
    [METRIC_HANDOFF_SIZE] = {"baton_handoff_size_bytes", NULL, METRIC_HISTOGRAM,
        "KV bytes of a hand-off, as prefill nodes report.", byte_bounds},
    [METRIC_HANDOFF_BYTES] = {"baton_handoff_bytes_total", NULL, METRIC_COUNTER,
        "KV bytes handed from prefill to decode nodes.", NULL},
    [METRIC_HANDOFFS_DAMAGED] = {"baton_handoffs_damaged_total", NULL, METRIC_COUNTER,
        "Hand-offs whose pages were damaged on their way: made once more, then an error.", NULL},
    [METRIC_HANDOFFS + 0] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"landed\""),
    [METRIC_HANDOFFS + 1] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"canceled\""),
    [METRIC_HANDOFFS + 2] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"timeout\""),
    [METRIC_HANDOFFS + 3] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"peer_lost\""),
    [METRIC_HANDOFFS + 4] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"corrupt\""),
    [METRIC_HANDOFFS + 5] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"mismatch\""),
    [METRIC_HANDOFFS + 6] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"prefill\",outcome=\"other\""),
    [METRIC_HANDOFFS + 7] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"landed\""),
    [METRIC_HANDOFFS + 8] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"canceled\""),
    [METRIC_HANDOFFS + 9] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"timeout\""),
    [METRIC_HANDOFFS + 10] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"peer_lost\""),
    [METRIC_HANDOFFS + 11] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"corrupt\""),
    [METRIC_HANDOFFS + 12] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"mismatch\""),
    [METRIC_HANDOFFS + 13] =
        SERIES(HANDOFFS, METRIC_COUNTER, "role=\"decode\",outcome=\"other\""),
    [METRIC_HANDOFF_MOVED + 0] =
        SERIES(HANDOFF_MOVED, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_HANDOFF_MOVED + 1] =
        SERIES(HANDOFF_MOVED, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_HANDOFF_BUSY + 0] =
        SERIES(HANDOFF_BUSY, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_HANDOFF_BUSY + 1] =
        SERIES(HANDOFF_BUSY, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_HANDOFF_OPEN + 0] =
        SERIES(HANDOFF_OPEN, METRIC_GAUGE, "role=\"prefill\""),
    [METRIC_HANDOFF_OPEN + 1] =
        SERIES(HANDOFF_OPEN, METRIC_GAUGE, "role=\"decode\""),
    [METRIC_HANDOFF_OLDEST + 0] =
        SERIES(HANDOFF_OLDEST, METRIC_GAUGE, "role=\"prefill\""),
    [METRIC_HANDOFF_OLDEST + 1] =
        SERIES(HANDOFF_OLDEST, METRIC_GAUGE, "role=\"decode\""),
    [METRIC_HANDOFF_QUEUE] = {"baton_handoff_queue_bytes", NULL, METRIC_GAUGE,
        "Bytes of pages that are computed and not yet sent.", NULL},
    [METRIC_HANDOFF_CHECKSUM_FAULTS] = {"baton_handoff_checksum_faults_total", NULL, METRIC_COUNTER,
        "Data messages whose bytes were not those that were sent.", NULL},
    [METRIC_PREFIX + 0] =
        SERIES(PREFIX_HITS, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_PREFIX + 1] =
        SERIES(PREFIX_HITS, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_PREFIX + 2] =
        SERIES(PREFIX_MISSES, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_PREFIX + 3] =
        SERIES(PREFIX_MISSES, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_PREFIX + 4] =
        SERIES(PREFIX_HIT_TOKENS, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_PREFIX + 5] =
        SERIES(PREFIX_HIT_TOKENS, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_PREFIX + 6] =
        SERIES(PREFIX_MISS_TOKENS, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_PREFIX + 7] =
        SERIES(PREFIX_MISS_TOKENS, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_PREFIX + 8] =
        SERIES(PREFIX_INSERTED, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_PREFIX + 9] =
        SERIES(PREFIX_INSERTED, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_PREFIX + 10] =
        SERIES(PREFIX_EVICTED, METRIC_COUNTER, "role=\"prefill\""),
    [METRIC_PREFIX + 11] =
        SERIES(PREFIX_EVICTED, METRIC_COUNTER, "role=\"decode\""),
    [METRIC_DECODE_STEPS] = {"baton_decode_steps_total", NULL, METRIC_COUNTER,
        "Steps of decode nodes.", NULL},
    [METRIC_DECODE_STEP_TIME] = {"baton_decode_step_seconds_total", NULL, METRIC_COUNTER,
        "Time in steps of decode nodes.", NULL},
    [METRIC_DECODE_FORWARD_TIME] = {"baton_decode_forward_seconds_total", NULL, METRIC_COUNTER,
        "Of the time in steps, what their forward passes took.", NULL},
    [METRIC_PREEMPTIONS] = {"baton_preemptions_total", NULL, METRIC_COUNTER,
        "Sequences that gave their KV pages back to an older one and were computed again.", NULL},
    [METRIC_PREEMPTED_TOKENS] = {"baton_preempted_tokens_total", NULL, METRIC_COUNTER,
        "Tokens whose KV was given back so.", NULL},
    [METRIC_MASKS] = {"baton_grammar_masks_total", NULL, METRIC_COUNTER,
        "Token masks that decode nodes made for answers with a grammar.", NULL},
    [METRIC_MASK_TIME] = {"baton_grammar_mask_seconds_total", NULL, METRIC_COUNTER,
        "Of the time in steps of decode nodes, what those masks took.", NULL},
    [METRIC_GRAMMARS] = {"baton_grammar_compiles_total", NULL, METRIC_COUNTER,
        "Grammars that decode nodes compiled.", NULL},
    [METRIC_GRAMMAR_TIME] = {"baton_grammar_compile_seconds_total", NULL, METRIC_COUNTER,
        "The time that took, beside the steps.", NULL},
    [METRIC_GRAMMAR_REQUESTS] =
        SERIES(GRAMMAR_REQUESTS, METRIC_COUNTER, "kind=\"json_schema\""),
    [METRIC_GRAMMAR_REQUESTS + 1] =
        SERIES(GRAMMAR_REQUESTS, METRIC_COUNTER, "kind=\"json_object\""),
    [METRIC_GRAMMAR_REQUESTS + 2] =
        SERIES(GRAMMAR_REQUESTS, METRIC_COUNTER, "kind=\"regex\""),
    [METRIC_GRAMMAR_REQUESTS + 3] =
        SERIES(GRAMMAR_REQUESTS, METRIC_COUNTER, "kind=\"choice\""),
    [METRIC_GRAMMAR_REQUESTS + 4] =
        SERIES(GRAMMAR_REQUESTS, METRIC_COUNTER, "kind=\"rules\""),
    [METRIC_GRAMMAR_REQUESTS + 5] =
        SERIES(GRAMMAR_REQUESTS, METRIC_COUNTER, "kind=\"structure\""),
    [METRIC_WAITS_HANDOFFS] =
        SERIES(WAITS, METRIC_COUNTER, "held_by=\"handoffs\""),
    [METRIC_WAITS_PROMPTS] =
        SERIES(WAITS, METRIC_COUNTER, "held_by=\"prompts\""),
    [METRIC_WORKERS_PREFILL_UP] =
        SERIES(WORKERS, METRIC_GAUGE, "role=\"prefill\",state=\"up\""),
    [METRIC_WORKERS_PREFILL_DRAINING] =
        SERIES(WORKERS, METRIC_GAUGE, "role=\"prefill\",state=\"draining\""),
    [METRIC_WORKERS_PREFILL_LOST] =
        SERIES(WORKERS, METRIC_GAUGE, "role=\"prefill\",state=\"lost\""),
    [METRIC_WORKERS_DECODE_UP] =
        SERIES(WORKERS, METRIC_GAUGE, "role=\"decode\",state=\"up\""),
    [METRIC_WORKERS_DECODE_DRAINING] =
        SERIES(WORKERS, METRIC_GAUGE, "role=\"decode\",state=\"draining\""),
    [METRIC_WORKERS_DECODE_LOST] =
        SERIES(WORKERS, METRIC_GAUGE, "role=\"decode\",state=\"lost\""),
    [METRIC_PAGES + 0] =
        SERIES(PAGES, METRIC_GAUGE, "role=\"prefill\",state=\"free\""),
    [METRIC_PAGES + 1] =
        SERIES(PAGES, METRIC_GAUGE, "role=\"prefill\",state=\"handoff\""),
    [METRIC_PAGES + 2] =
        SERIES(PAGES, METRIC_GAUGE, "role=\"prefill\",state=\"used\""),
    [METRIC_PAGES + 3] =
        SERIES(PAGES, METRIC_GAUGE, "role=\"decode\",state=\"free\""),
    [METRIC_PAGES + 4] =
        SERIES(PAGES, METRIC_GAUGE, "role=\"decode\",state=\"handoff\""),
    [METRIC_PAGES + 5] =
        SERIES(PAGES, METRIC_GAUGE, "role=\"decode\",state=\"used\""),
    [METRIC_PREFIX_PAGES + 0] =
        SERIES(PREFIX_PAGES, METRIC_GAUGE, "role=\"prefill\""),
    [METRIC_PREFIX_PAGES + 1] =
        SERIES(PREFIX_PAGES, METRIC_GAUGE, "role=\"decode\""),
    [METRIC_WORKERS_LOST_TOTAL] = {"baton_workers_lost_total", NULL, METRIC_COUNTER,
        "Workers whose link was lost, other than of those that drained and left.", NULL},
    [METRIC_LINKS_UNPROVEN] = {"baton_links_unproven_total", NULL, METRIC_COUNTER,
        "Connections that router and workers turned away for want of the secret's proof.",
        NULL},
    [METRIC_TOKENS_OVERTAKEN] = {"baton_tokens_overtaken_total", NULL, METRIC_COUNTER,
        "Tokens that came before an earlier one and were held for it.", NULL},
    [METRIC_TOKENS_DUPLICATE] = {"baton_tokens_duplicate_total", NULL, METRIC_COUNTER,
        "Tokens that came again and were dropped.", NULL},
    [METRIC_MESSAGES_LATE] = {"baton_messages_late_total", NULL, METRIC_COUNTER,
        "Worker messages for a request that had ended.", NULL},
    [METRIC_SLOW_READERS] = {"baton_slow_readers_total", NULL, METRIC_COUNTER,
        "Streams dropped because their client took too little.", NULL},
    [METRIC_JOURNAL_WRITTEN] = {"baton_journal_records_total", NULL, METRIC_COUNTER,
        "Journal records written.", NULL},
    [METRIC_JOURNAL_DROPPED] = {"baton_journal_dropped_total", NULL, METRIC_COUNTER,
        "Journal records that could not be written.", NULL},
    [METRIC_JOURNAL_DAMAGED] = {"baton_journal_damaged_total", NULL, METRIC_COUNTER,
        "Damaged journal files moved aside.", NULL},
    [METRIC_JOURNAL_HEALTHY] = {"baton_journal_healthy", NULL, METRIC_GAUGE,
        "1 while the journal can be written.", NULL},
    [METRIC_JOURNAL_BYTES] = {"baton_journal_bytes", NULL, METRIC_GAUGE,
        "Size of the journal and its write-ahead log.", NULL},
    [METRIC_PROCESS_START] = {"process_start_time_seconds", NULL, METRIC_GAUGE,
        "When the router started, in seconds since 1970.", NULL},
    [METRIC_PROCESS_CPU] = {"process_cpu_seconds_total", NULL, METRIC_COUNTER,
        "CPU time the router has used.", NULL},
    [METRIC_PROCESS_MEMORY] = {"process_resident_memory_bytes", NULL, METRIC_GAUGE,
        "Memory the router has resident.", NULL},
};
/* clang-format on */

struct metrics *router_metrics_create(void)
{
    return metrics_create(rows, ARRAY_COUNT(rows));
}

void router_metrics_count_error(struct metrics *metrics, const char *code, int http_status)
{
    static const char *const codes[] = {
        "invalid_request", "model_not_found",     "context_length_exceeded", "unsupported_value",
        "not_found",       "method_not_allowed",  "bad_content_type",        "overloaded",
        "shutting_down",   "no_workers",          "worker_unavailable",      "worker_lost",
        "worker_fault",    "deadline_exceeded",   "deadline_unattainable",   "ttft_target",
        "tpot_target",     "rate_limit_exceeded", "invalid_api_key",         "permission_denied",
        "other",
    };
    _Static_assert(METRIC_ERRORS + ARRAY_COUNT(codes) - 1 == METRIC_ERRORS_LAST,
                   "each code has its row");
    if (!code && http_status < 500)
        code = codes[0]; /* a field that is wrong: its name is no label */
    uint32_t at = 0;
    while (at + 1 < ARRAY_COUNT(codes) && (!code || strcmp(codes[at], code) != 0))
        at++;
    metrics_add(metrics, METRIC_ERRORS + at, 1);
}
