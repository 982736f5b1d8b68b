#include "worker/worker_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/stream.h"
#include "kernels/backend.h"
#include "transfer/handoff.h"
#include "transfer/router_client.h"
#include "worker/notify.h"

/* The choices of these rows stand in the order of the enums they fill. */
_Static_assert(KV_F32 == 0 && KV_BF16 == 1 && KV_I8 == 2, "--kv-dtype f32|bf16|int8");
_Static_assert(HANDOFF_CHECKSUM_NONE == 0 && HANDOFF_CHECKSUM_CRC32C == 1,
               "--checksum none|crc32c");

/* What routers take: they tell of it in log lines and labels. */
static enum status check_name(const char *name, struct error *error)
{
    if (name != NULL && strlen(name) >= WORKER_NODE_BYTES)
        return error_set(error, STATUS_LIMIT, "--name: %zu bytes, the most are %d", strlen(name),
                         WORKER_NODE_BYTES - 1);
    for (const char *c = name; c != NULL && *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return error_set(error, STATUS_INVALID,
                             "--name: byte 0x%02x at %td; names are printable ASCII without "
                             "spaces, quotes and backslashes",
                             (unsigned char)*c, c - name);
    }
    return STATUS_OK;
}

enum status worker_options_check(const struct worker_options *options, struct error *error)
{
    if (options->model == NULL || options->model[0] == '\0')
        return error_set(error, STATUS_INVALID, "--model FILE is required");
    if (options->routers.count == 0)
        return error_set(error, STATUS_INVALID, "--router: at least one HOST:PORT is needed");
    CHECK(options->routers.count <= ROUTER_LINKS_MAX); // as their row says
    for (uint32_t i = 0; i < options->routers.count; i++) {
        struct error reason;
        if (stream_address_check(options->routers.items[i], false, &reason) != STATUS_OK)
            return error_set(error, STATUS_INVALID, "--router: %s", reason.text);
    }
    if (options->page_tokens % KV_BLOCK_TOKENS != 0)
        return error_set(error, STATUS_INVALID, "--page-tokens: %" PRIu32 " is no multiple of %d",
                         options->page_tokens, KV_BLOCK_TOKENS);
    if (options->chunk_tokens < options->page_tokens)
        return error_set(error, STATUS_INVALID,
                         "--chunk-tokens: %" PRIu32 " is less than a page of %" PRIu32 " tokens",
                         options->chunk_tokens, options->page_tokens);
    TRY(check_name(options->name, error));
    if (options->model_name != NULL && strlen(options->model_name) > WORKER_MODEL_NAME_MAX)
        return error_set(error, STATUS_LIMIT, "--model-name: %zu bytes, the most are %d",
                         strlen(options->model_name), WORKER_MODEL_NAME_MAX);
    const int files =
        (options->tls_cert != NULL) + (options->tls_key != NULL) + (options->tls_ca != NULL);
    if (files != 0 && files != 3)
        return error_set(error, STATUS_INVALID,
                         "--tls-cert, --tls-key and --tls-ca belong together, %d of them %s given",
                         files, files == 1 ? "is" : "are");
    struct notify notify;
    return notify_open(&notify, options->notify_fd, error);
}

void worker_node_name(const struct worker_options *options, enum worker_role role,
                      char out[WORKER_NODE_BYTES])
{
    if (options->name != NULL && options->name[0] != '\0') {
        snprintf(out, WORKER_NODE_BYTES, "%s", options->name);
        return;
    }
    char host[WORKER_NODE_BYTES] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "localhost");
    snprintf(out, WORKER_NODE_BYTES, "%s-%.32s-%ld", role == WORKER_PREFILL ? "prefill" : "decode",
             host, (long)getpid());
}

int worker_options_parse(const struct config_command *command, int argc, char **argv,
                         struct worker_options *options)
{
    const int code = config_begin(command, argc, argv, options, NULL);
    if (code != CONFIG_GO_ON)
        return code;
    struct error error;
    if (worker_options_check(options, &error) != STATUS_OK)
        return config_misused(command, "%s", error.text);
    return CONFIG_GO_ON;
}
