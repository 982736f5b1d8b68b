/* The UCX library and its domains: settings, contexts, workers, progress. */
#include "transfer/mover_ucx_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "base/check.h"
#include "base/log.h"

enum { RENDEZVOUS_RDMA_BYTES = 64 << 10 };
enum { PROGRESS_PER_TURN = 64 }; /* calls before other events of the loop get their turn */

enum status domain_status(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return STATUS_OK;
    case UCS_ERR_CANCELED:
        return STATUS_CANCELED;
    case UCS_ERR_TIMED_OUT:
        return STATUS_TIMEOUT;
    case UCS_ERR_NO_MEMORY:
        return STATUS_NO_MEMORY;
    default:
        /* Which code a dead peer gives depends on what noticed it first: all mean the same. */
        return STATUS_CLOSED;
    }
}

/* ---- the library as a whole ---- */

static ucs_log_func_rc_t on_ucx_log(const char *file, unsigned line, const char *function,
                                    ucs_log_level_t level,
                                    const ucs_log_component_config_t *component,
                                    const char *message, va_list arguments)
{
    char text[400];
    vsnprintf(text, sizeof text, message, arguments);
    if (level == UCS_LOG_LEVEL_FATAL)
        LOG_ERROR("UCX: %s (%s:%u)", text, file, line);
    else if (level <= UCS_LOG_LEVEL_WARN)
        LOG_DEBUG("UCX: %s", text); /* faults of peers are told by their status */
    return UCS_LOG_FUNC_RC_STOP;
}

/* UCX writes its log to standard output and takes over SIGSEGV and its kin when it is loaded; both
 * belong to the program. UCX 1.13 takes the settings of a transport only from the environment
 * (given to ucp_config_modify they are kept aside and never used). A user who set a variable gets
 * what it says. */
void domain_library_tame(void)
{
    static const char *const settings[][2] = {
        {"UCX_TCP_KEEPIDLE", "1s"},    {"UCX_TCP_KEEPINTVL", "1s"}, {"UCX_TCP_KEEPCNT", "3"},
        {"UCX_TCP_CM_REUSEADDR", "y"}, {"UCX_TCP_PUT_ENABLE", "n"}, {"UCX_TCP_RX_SEG_SIZE", "256k"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(settings); i++)
        CHECK(setenv(settings[i][0], settings[i][1], 0) == 0);
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    if (!getenv("UCX_LOG_LEVEL") && !getenv("UCX_LOG_FILE"))
        ucs_log_push_handler(on_ucx_log);
    if (!getenv("UCX_ERROR_SIGNALS") && !getenv("UCX_HANDLE_ERRORS"))
        for (size_t i = 0; i < ARRAY_COUNT(signals); i++)
            ucs_debug_disable_signal(signals[i]);
}

/* Is one of these, each with a comma behind it, among the transports of UCX_TLS? */
static bool transports_have(const char *names)
{
    const char *transports = getenv("UCX_TLS");
    char list[256];
    char *rest = list;
    if (!transports)
        return false;
    snprintf(list, sizeof list, "%s", transports);
    for (const char *name; (name = strsep(&rest, ","));) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, ",%.28s,", name);
        if (strstr(names, wanted))
            return true;
    }
    return false;
}

bool domain_shares_memory(void)
{
    return transports_have(",all,shm,sm,mm,posix,sysv,");
}

size_t domain_rendezvous_bytes(void)
{
    const char *threshold = getenv("UCX_RNDV_THRESH");
    if (threshold && threshold[0] >= '0' && threshold[0] <= '9') {
        char *end;
        const unsigned long long number = strtoull(threshold, &end, 10);
        return (size_t)(*end == 'k' || *end == 'K'   ? number << 10
                        : *end == 'm' || *end == 'M' ? number << 20
                                                     : number);
    }
    return transports_have(",all,ib,rc,rc_x,rc_v,rc_verbs,rc_mlx5,dc,dc_x,dc_mlx5,ud,ud_x,")
               ? RENDEZVOUS_RDMA_BYTES
               : SIZE_MAX;
}

/* ---- domains ---- */

static void configure(ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (getenv(variable))
        return;
    const ucs_status_t status = ucp_config_modify(config, name, value);
    if (status != UCS_OK)
        LOG_WARN("%s=%s is not known to this UCX: %s", variable, value, ucs_status_string(status));
}

static ucs_status_t context_create(struct domain *domain)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    configure(config, "TLS", "tcp,self");
    configure(config, "KEEPALIVE_INTERVAL", "1s");
    if (domain->device[0])
        configure(config, "NET_DEVICES", domain->device);
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
    };
    status = ucp_init(&params, config, &domain->context);
    ucp_config_release(config);
    return status;
}

static ucs_status_t handler_set(struct domain *domain, const struct domain_handler *handler)
{
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = handler->id,
        .cb = handler->callback,
        .arg = domain,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
    };
    return ucp_worker_set_am_recv_handler(domain->worker, &param);
}

static ucs_status_t worker_create(struct domain *domain, const struct domain_handler *handlers,
                                  uint32_t handler_count)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    ucs_status_t status = ucp_worker_create(domain->context, &params, &domain->worker);
    for (uint32_t i = 0; i < handler_count && status == UCS_OK; i++)
        status = handler_set(domain, &handlers[i]);
    return status;
}

/* Registered once, so that no transfer has to. On TCP there is nothing to register, so a refusal
 * (a low limit of locked memory) only costs speed. */
static void memory_register(struct domain *domain, void *memory, size_t memory_bytes)
{
    const ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = memory,
        .length = memory_bytes,
    };
    if (!memory || memory_bytes == 0)
        return;
    const ucs_status_t status = ucp_mem_map(domain->context, &params, &domain->memory);
    if (status != UCS_OK) {
        domain->memory = NULL;
        LOG_WARN("the %zu bytes of pages could not be registered with UCX: %s", memory_bytes,
                 ucs_status_string(status));
    }
}

enum status domain_open(struct domain *domain, const char *device,
                        const struct domain_handler *handlers, uint32_t handler_count, void *memory,
                        size_t memory_bytes, int *fd_out, struct error *error)
{
    snprintf(domain->device, sizeof domain->device, "%s", device);
    ucs_status_t status = context_create(domain);
    if (status == UCS_OK)
        status = worker_create(domain, handlers, handler_count);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(domain->worker, fd_out);
    if (status != UCS_OK) {
        domain_close(domain);
        return error_set(error, STATUS_IO, "UCX does not start on device %s: %s",
                         device[0] ? device : "(all)", ucs_status_string(status));
    }
    memory_register(domain, memory, memory_bytes);
    return STATUS_OK;
}

void domain_close(struct domain *domain)
{
    loop_io_destroy(domain->io);
    if (domain->memory)
        ucp_mem_unmap(domain->context, domain->memory);
    if (domain->worker)
        ucp_worker_destroy(domain->worker);
    if (domain->context)
        ucp_cleanup(domain->context);
    *domain = (struct domain){0};
}

bool domain_poll(struct domain *domain)
{
    return ucp_worker_progress(domain->worker) != 0;
}

bool domain_progress(struct domain *domain)
{
    for (int i = 0; i < PROGRESS_PER_TURN; i++)
        if (!domain_poll(domain))
            return true;
    return false;
}

bool domain_arm(struct domain *domain)
{
    const ucs_status_t status = ucp_worker_arm(domain->worker);
    CHECK(status == UCS_OK || status == UCS_ERR_BUSY);
    return status == UCS_OK;
}
