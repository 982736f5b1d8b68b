/* baton-prefill: options, start, run, end. */
#include "base/log.h"
#include "base/check.h"
#include "prefill_node/prefill_node.h"

static const struct config_row rows[] = {
    WORKER_OPTION_ROWS("256", "64"),
    {.name = "ttft-target-ms",
     .kind = CONFIG_MS,
     .offset = offsetof(struct prefill_options, ttft_target_ms),
     .fallback = "500ms",
     .help = "when a first token is due; prompts are computed in the order of their due times",
     .max = 600000},
    {.name = "max-queued-tokens",
     .kind = CONFIG_U32,
     .offset = offsetof(struct prefill_options, max_queued_tokens),
     .fallback = "262144",
     .help = "prompt tokens that wait at once; what would be more is refused, unless none waits",
     .min = 1},
};

static const struct config_command command = {
    .program = "baton-prefill",
    .summary = "Reads prompts: computes their KV pages, hands them to decode nodes, samples the "
               "first token.",
    .examples = "  baton-prefill --model MODEL.gguf --router 10.0.0.1:7700\n",
    .rows = rows,
    .row_count = ARRAY_COUNT(rows),
};

int main(int argc, char **argv)
{
    static struct worker worker;
    static struct prefill_options options;
    const int parsed = worker_options_parse(&command, argc, argv, &options.common);
    if (parsed >= 0)
        return parsed;
    struct worker_batch batch;
    prefill_node_batch(&options, &batch);
    struct error error;
    if (worker_open(&worker, WORKER_PREFILL, &options.common, NULL, &batch, &error) != STATUS_OK)
        return worker_fail(&worker, &error);
    struct prefill_node *node = NULL;
    int code;
    if (prefill_node_create(&worker, &options, &node, &error) == STATUS_OK)
        code = worker_run(&worker, prefill_node_events(node), node);
    else
        code = worker_fail(&worker, &error);
    prefill_node_destroy(node);
    worker_close(&worker);
    if (code == 0)
        LOG_INFO("stopped");
    return code;
}
