/* `baton up`: the embedded default, a whole cluster on this machine. This file turns the options
 * into a checked plan; up_cluster.c runs it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "base/memory.h"
#include "base/secret.h"
#include "ops/baton/commands.h"
#include "ops/baton/up_cluster.h"
#include "router/model_list.h"

enum { ROLE_NODES_MAX = CLUSTER_WORKERS_MAX / 2, AMOUNT_BYTES = 32 };

struct up_options {
    const char *model_name, *http, *workdir, *ready_file, *secret_file, *mover;
    struct config_texts models, chat_templates, faults;
    uint32_t prefill_count, decode_count, threads, kv_dtype;
    uint32_t context_tokens, chunk_tokens, max_batch;
    uint32_t start_timeout_ms, stop_timeout_ms;
    struct config_amount kv_memory;
    bool kv_prefault, no_prefix_cache;
};

static const char *const kv_dtype_names[] = {"f32", "bf16", "int8"};

#define OPTION(field) offsetof(struct up_options, field)
static const struct config_row up_rows[] = {
    {"model", CONFIG_TEXTS, OPTION(models), NULL, "[NAME=]FILE",
     "GGUF file or Hugging Face folder to serve (required), and what clients call it; each has "
     "nodes of its own",
     0, 0},
    {"prefill", CONFIG_U32, OPTION(prefill_count), "1", "N",
     "prefill nodes of each model; 0 lets decode nodes read prompts themselves", 0, ROLE_NODES_MAX},
    {"decode", CONFIG_U32, OPTION(decode_count), "1", "N", "decode nodes of each model", 1,
     ROLE_NODES_MAX},
    {"http", CONFIG_TEXT, OPTION(http), "127.0.0.1:8000", "ADDR:PORT",
     "where clients connect; port 0 picks a free one", 0, 0},
    {"model-name", CONFIG_TEXT, OPTION(model_name), NULL, "NAME",
     "name clients see of the only model", 0, 0},
    {"chat-template", CONFIG_TEXTS, OPTION(chat_templates), NULL, "[MODEL=]FILE",
     "Jinja template of chats, instead of the one in the model; without MODEL= it is for all "
     "models that have none here",
     0, 0},
    {"workdir", CONFIG_TEXT, OPTION(workdir), NULL, "DIR",
     "logs and journal (default: a new folder in ~/.local/state/baton)", 0, 0},
    {"secret-file", CONFIG_TEXT, OPTION(secret_file), NULL, "FILE",
     "the secret that the processes share (default: one made in the work folder)", 0, 0},
    {"mover", CONFIG_TEXT, OPTION(mover), NULL, "ucx|tls",
     "how pages travel between the nodes (default: ucx where it is built in)", 0, 0},
    {"fault", CONFIG_TEXTS, OPTION(faults), NULL, "NODE=FAULT",
     "inject faults into the first process of that name, e.g. prefill-0=data-send:3:drop", 0, 0},
    {"threads", CONFIG_U32, OPTION(threads), "0", "N",
     "compute threads of each worker; 0 divides the CPUs among them", 0, 1024},
    {"kv-dtype", CONFIG_CHOICE, OPTION(kv_dtype), "bf16", "f32|bf16|int8", "type of the KV cache",
     0, 0},
    {"kv-memory", CONFIG_AMOUNT, OPTION(kv_memory), NULL, NULL,
     "KV cache: the size of each node's, or the share that all together take of the memory that "
     "weights leave; without it half, but no more than their requests need",
     0, 0},
    {"kv-prefault", CONFIG_FLAG, OPTION(kv_prefault), NULL, NULL,
     "take all of that memory at the start", 0, 0},
    {"context", CONFIG_U32, OPTION(context_tokens), NULL, "N",
     "longest sequence in tokens (default: the model's)", 0, 0},
    {"chunk-tokens", CONFIG_U32, OPTION(chunk_tokens), NULL, "N", "prompt tokens of one step", 0,
     0},
    {"max-batch", CONFIG_U32, OPTION(max_batch), NULL, "N", "sequences of one decode step", 0, 0},
    {"no-prefix-cache", CONFIG_FLAG, OPTION(no_prefix_cache), NULL, NULL,
     "compute every prompt anew, also where its beginning is known", 0, 0},
    {"start-timeout", CONFIG_MS, OPTION(start_timeout_ms), "120s", "TIME",
     "how long all may take to be ready", 1, 3600000},
    {"stop-timeout", CONFIG_MS, OPTION(stop_timeout_ms), "10s", "TIME",
     "from asking the daemons to stop to killing them", 1, 3600000},
    {"ready-file", CONFIG_TEXT, OPTION(ready_file), NULL, "FILE",
     "written as JSON when the cluster is ready: url, pids, addresses", 0, 0},
};

static const struct config_command up_command = {
    .program = "baton up",
    .summary = "Starts a router, prefill nodes and decode nodes on this machine and keeps them "
               "running.",
    .examples = "  baton up --model model.gguf\n"
                "  baton up --model model.gguf --prefill 2 --decode 2 --http 0.0.0.0:8000\n"
                "  baton up --model model.gguf --prefill 0   (decode nodes read the prompts)\n"
                "  baton up --model small=a.gguf --model large=b.gguf\n",
    .rows = up_rows,
    .row_count = ARRAY_COUNT(up_rows),
};

static enum status model_check(const char *model, struct error *error)
{
    struct stat found;
    if (stat(model, &found) != 0)
        return error_set_errno(error, STATUS_NOT_FOUND, "the model %s cannot be opened", model);
    if (!S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))
        return error_set(error, STATUS_INVALID, "the model %s is neither a file nor a folder",
                         model);
    return STATUS_OK;
}

static enum status bin_folder_find(char *folder, size_t bytes, struct error *error)
{
    const ssize_t length = readlink("/proc/self/exe", folder, bytes - 1);
    if (length < 0)
        return error_set_errno(error, STATUS_IO, "/proc/self/exe cannot be read");
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    return STATUS_OK;
}

/* mkdir -p. */
static enum status folder_make(const char *path, struct error *error)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= PATH_MAX)
        return error_set(error, STATUS_LIMIT, "the path %.64s... is longer than %d bytes", path,
                         PATH_MAX - 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return error_set_errno(error, STATUS_IO, "the folder %s cannot be made", part);
        *slash = '/';
    }
    if (mkdir(part, 0755) != 0 && errno != EEXIST)
        return error_set_errno(error, STATUS_IO, "the folder %s cannot be made", part);
    return STATUS_OK;
}

/* A new folder under the user's state folder; without a home, under the temporary one. */
static enum status default_folder(char *folder, size_t bytes, struct error *error)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const char *scratch = getenv("TMPDIR");
    char stamp[32];
    struct tm utc;
    const time_t now = time(NULL);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", gmtime_r(&now, &utc));
    int length;
    if (state && state[0] == '/')
        length = snprintf(folder, bytes, "%s/baton/%s-%d", state, stamp, (int)getpid());
    else if (home && home[0] == '/')
        length = snprintf(folder, bytes, "%s/.local/state/baton/%s-%d", home, stamp, (int)getpid());
    else
        length = snprintf(folder, bytes, "%s/baton-%s-%d", scratch ? scratch : "/tmp", stamp,
                          (int)getpid());
    if (length < 0 || (size_t)length >= bytes)
        return error_set(error, STATUS_LIMIT, "the path of the work folder is over %zu bytes",
                         bytes - 1);
    return STATUS_OK;
}

/* Two clusters in one folder would write one journal: the lock is held until this process ends. */
static enum status folder_lock(const char *folder, struct error *error)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lock", folder) >= PATH_MAX)
        return error_set(error, STATUS_LIMIT, "the path of %s is too long", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "%s cannot be opened", path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return STATUS_OK;
    const bool taken = errno == EWOULDBLOCK;
    if (taken)
        error_set(error, STATUS_BUSY, "another baton up runs in %s, choose another --workdir",
                  folder);
    else
        error_set_errno(error, STATUS_IO, "%s cannot be locked", path);
    close(fd);
    return taken ? STATUS_BUSY : STATUS_IO;
}

static enum status work_folder_open(const struct up_options *options, char *folder,
                                    struct error *error)
{
    char wanted[PATH_MAX];
    if (options->workdir)
        snprintf(wanted, sizeof wanted, "%s", options->workdir);
    else
        TRY(default_folder(wanted, sizeof wanted, error));
    TRY(folder_make(wanted, error));
    if (!realpath(wanted, folder))
        return error_set_errno(error, STATUS_IO, "the folder %s cannot be used", wanted);
    return folder_lock(folder, error);
}

/* One for the life of the folder. */
static enum status secret_file_make(const char *folder, char path[PATH_MAX], struct error *error)
{
    if (snprintf(path, PATH_MAX, "%s/secret", folder) >= PATH_MAX)
        return error_set(error, STATUS_LIMIT, "the path of %s is too long", folder);
    return secret_make(path, error);
}

static uint32_t threads_divide(uint32_t worker_count)
{
    cpu_set_t set;
    const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const uint32_t share = (uint32_t)cpus / worker_count;
    return share > 0 ? share : 1;
}

/* Of a model's weights as they are stored: of a file, or of a folder's safetensors. What is gone
 * since it was seen has none. */
static uint64_t stored_bytes(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return 0;
    DIR *folder = S_ISDIR(found.st_mode) ? opendir(path) : NULL;
    if (!folder)
        return (uint64_t)found.st_size;
    uint64_t bytes = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".safetensors") == 0 &&
            fstatat(dirfd(folder), entry->d_name, &found, 0) == 0)
            bytes += (uint64_t)found.st_size;
    }
    closedir(folder);
    return bytes;
}

/* What each node takes its share of: they start at the same time and cannot see each other's
 * weights and pools, so that it is divided here. 0 when the system does not tell. */
static uint64_t memory_divide(const struct cluster_model *models, uint32_t model_count,
                              uint32_t worker_count)
{
    const uint64_t available = memory_available();
    uint64_t weights = 0;
    for (uint32_t i = 0; i < model_count; i++)
        weights += stored_bytes(models[i].path) * (worker_count / model_count);
    return available > weights ? (available - weights) / worker_count : 0;
}

/* As the daemons read it; NULL for none. */
static const char *amount_show(const struct config_amount *amount, char out[AMOUNT_BYTES])
{
    if (amount->bytes > 0)
        snprintf(out, AMOUNT_BYTES, "%ju", (uintmax_t)amount->bytes);
    else if (amount->share > 0)
        snprintf(out, AMOUNT_BYTES, "%.15g%%", amount->share * 100);
    else
        return NULL;
    return out;
}

/* models: [CONFIG_TEXTS_MAX], their names to be freed after failure too. */
static enum status models_find(const struct up_options *options, struct cluster_model *models,
                               struct error *error)
{
    const uint32_t count = options->models.count;
    if (count * (options->prefill_count + options->decode_count) > CLUSTER_WORKERS_MAX)
        return error_set(error, STATUS_LIMIT,
                         "%u models with %u prefill and %u decode nodes each are over the limit of "
                         "%d nodes",
                         count, options->prefill_count, options->decode_count, CLUSTER_WORKERS_MAX);
    if (count > 1 && options->model_name)
        return error_set(error, STATUS_INVALID,
                         "--model-name is of one model, and --model names %u: say --model "
                         "NAME=FILE",
                         count);
    for (uint32_t i = 0; i < count; i++) {
        models[i].operand = options->models.items[i];
        models[i].path = model_list_operand(models[i].operand, &models[i].name);
        TRY(model_check(models[i].path, error));
    }
    return STATUS_OK;
}

static enum status up_run(const struct up_options *options, const struct cluster_model *models,
                          struct error *error)
{
    char bin_folder[PATH_MAX], folder[PATH_MAX], secret[PATH_MAX], kv_memory[AMOUNT_BYTES];
    TRY(bin_folder_find(bin_folder, sizeof bin_folder, error));
    TRY(work_folder_open(options, folder, error));
    if (options->secret_file)
        snprintf(secret, sizeof secret, "%s", options->secret_file);
    else
        TRY(secret_file_make(folder, secret, error));
    const uint32_t model_count = options->models.count;
    const uint32_t worker_count = model_count * (options->prefill_count + options->decode_count);
    const struct cluster_options cluster = {
        .models = models,
        .model_count = model_count,
        .model_name = options->model_name,
        .chat_templates = options->chat_templates.items,
        .chat_template_count = options->chat_templates.count,
        .http = options->http,
        .folder = folder,
        .bin_folder = bin_folder,
        .secret_file = secret,
        .mover = options->mover,
        .faults = options->faults.items,
        .fault_count = options->faults.count,
        .ready_file = options->ready_file,
        .prefill_count = options->prefill_count,
        .decode_count = options->decode_count,
        .threads = options->threads ? options->threads : threads_divide(worker_count),
        .kv_dtype = kv_dtype_names[options->kv_dtype],
        .kv_memory = amount_show(&options->kv_memory, kv_memory),
        .kv_memory_of = memory_divide(models, model_count, worker_count),
        .kv_prefault = options->kv_prefault,
        .context_tokens = options->context_tokens,
        .chunk_tokens = options->chunk_tokens,
        .max_batch = options->max_batch,
        .no_prefix_cache = options->no_prefix_cache,
        .start_timeout_ms = options->start_timeout_ms,
        .stop_timeout_ms = options->stop_timeout_ms,
    };
    return cluster_run(&cluster, error);
}

int command_up(int argc, char **argv)
{
    struct up_options options;
    int first_operand;
    const int code = config_begin(&up_command, argc, argv, &options, &first_operand);
    if (code != CONFIG_GO_ON)
        return code;
    struct error error;
    if (options.models.count == 0)
        return config_misused(&up_command, "--model FILE is required");
    struct cluster_model models[CONFIG_TEXTS_MAX] = {{0}};
    enum status status = models_find(&options, models, &error);
    if (status == STATUS_OK)
        status = up_run(&options, models, &error);
    for (uint32_t i = 0; i < options.models.count; i++)
        free(models[i].name);
    return config_end(&up_command, status, &error);
}
