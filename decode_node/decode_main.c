/* baton-decode: options, start, run, end. */
#include "base/check.h"
#include "base/log.h"
#include "decode_node/decode_node.h"

static const struct config_row rows[] = {
    WORKER_OPTION_ROWS("256", "128"),
    {.name = "data",
     .kind = CONFIG_TEXT,
     .offset = offsetof(struct decode_options, data_address),
     .fallback = "127.0.0.1:0",
     .choices = "ADDR:PORT",
     .help =
         "where prefill nodes dial; port 0 picks one. Only the mover tls encrypts: fence others"},
    {.name = "max-batch",
     .kind = CONFIG_U32,
     .offset = offsetof(struct decode_options, max_batch),
     .fallback = "32",
     .help = "sequences of one step; more wait",
     .min = 1,
     .max = DECODE_BATCH_MAX},
    {.name = "lease-ms",
     .kind = CONFIG_MS,
     .offset = offsetof(struct decode_options, lease_ms),
     .fallback = "10s",
     .help = "how long pages stay set aside for a prefill node that does not come",
     .min = 10,
     .max = 600000},
    {.name = "tpot-target-ms",
     .kind = CONFIG_MS,
     .offset = offsetof(struct decode_options, tpot_target_ms),
     .fallback = "0",
     .help = "a step is to take no longer: requests that would make it so wait; 0 for no target",
     .max = 60000},
};

static const struct config_command command = {
    .program = "baton-decode",
    .summary = "Writes answers: receives prompts' KV pages from prefill nodes, computes one token "
               "a step for all requests.",
    .examples = "  baton-decode --model MODEL.gguf --router 10.0.0.1:7700 --data 10.0.0.3:7801\n",
    .rows = rows,
    .row_count = ARRAY_COUNT(rows),
};

int main(int argc, char **argv)
{
    static struct worker worker;
    static struct decode_options options;
    const int parsed = worker_options_parse(&command, argc, argv, &options.common);
    if (parsed >= 0)
        return parsed;
    struct worker_batch batch;
    decode_node_batch(&options, &batch);
    struct error error;
    if (worker_open(&worker, WORKER_DECODE, &options.common, options.data_address, &batch,
                    &error) != STATUS_OK)
        return worker_fail(&worker, &error);
    struct decode_node *node = NULL;
    int code;
    if (decode_node_create(&worker, &options, &node, &error) == STATUS_OK)
        code = worker_run(&worker, decode_node_events(node), node);
    else
        code = worker_fail(&worker, &error);
    decode_node_destroy(node);
    worker_close(&worker);
    if (code == 0)
        LOG_INFO("stopped");
    return code;
}
