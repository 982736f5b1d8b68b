/* kernel_check [--seed N] [--filter TEXT] [--isa NAME] [--list] | --selftest
 *
 * Exit code: 0 all variants passed, 1 some failed, 2 bad arguments, 77 this CPU lacks --isa. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "tests/kernels/check/kernel_check.h"

enum { EXIT_SKIP = 77, EXIT_USAGE = 2 };

typedef void checker(struct check *check);

static checker *checker_for(const char *operation)
{
    static const struct {
        const char *operation;
        checker *function;
    } checkers[] = {
        {"quantize", check_quantize},     {"round", check_round},
        {"matmul", check_matmul},         {"embed", check_embed},
        {"rms_norm", check_rms_norm},     {"rope", check_rope},
        {"swiglu", check_swiglu},         {"kv_write", check_kv_write},
        {"attention", check_attention},   {"top", check_top},
        {"layer_norm", check_layer_norm}, {"gelu", check_gelu},
        {"route", check_route},           {"rows_add", check_rows_add},
        {"scale", check_scale},           {"soft_cap", check_soft_cap},
    };
    for (size_t i = 0; i < ARRAY_COUNT(checkers); i++)
        if (strcmp(checkers[i].operation, operation) == 0)
            return checkers[i].function;
    return NULL;
}

static void (*reference_of(enum kernel_slot slot))(void)
{
    uint32_t count;
    const struct kernel_row *rows = kernel_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].slot == slot && rows[i].isa == KERNEL_ISA_ref)
            return rows[i].function;
    return NULL;
}

/* The child: every variant draws the same numbers for the same seed, whatever the filter. */
static int run_checker(const struct kernel_row *row, uint64_t seed)
{
    struct check check = {
        .row = row, .function = row->function, .reference = reference_of(row->slot)};
    checker *function = checker_for(row->operation);
    if (!function || !check.reference) {
        printf("  %s: there is no checker for the operation %s\n", row->name, row->operation);
        return 1;
    }
    random_init(&check.random, hash64(row->name, strlen(row->name), seed));
    snprintf(check.shape, sizeof(check.shape), "before the first case");
    function(&check);
    if (check.cases == 0)
        printf("  %s: the checker made no case\n", row->name);
    if (check.failures > 0)
        printf("  %s: %u failures in %u cases\n", row->name, check.failures, check.cases);
    return check.failures > 0 || check.cases == 0;
}

bool check_run_row(const struct kernel_row *row, uint64_t seed, bool quiet)
{
    fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (quiet && !(freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr)))
            _exit(1);
        const int code = run_checker(row, seed);
        fflush(stdout);
        _exit(code);
    }
    int state;
    CHECK(waitpid(child, &state, 0) == child);
    const bool passed = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    if (WIFSIGNALED(state) && !quiet)
        printf("  %s: killed by signal %d (%s)\n", row->name, WTERMSIG(state),
               strsignal(WTERMSIG(state)));
    if (!quiet)
        printf("%-5s %-32s %s/%s %s\n", passed ? "ok" : "FAIL", row->name, row->operation,
               row->dtype, kernel_isa_name(row->isa));
    return passed;
}

static int run_all(uint64_t seed, const char *filter, const char *isa_name)
{
    enum kernel_isa only = KERNEL_ISA_COUNT;
    if (isa_name && !kernel_isa_parse(isa_name, &only)) {
        fprintf(stderr, "There is no instruction set \"%s\".\n", isa_name);
        return EXIT_USAGE;
    }
    if (isa_name && !kernel_isa_available(only)) {
        printf("This CPU cannot run %s: skipped.\n", isa_name);
        return EXIT_SKIP;
    }
    uint32_t row_count;
    uint32_t run = 0;
    uint32_t failed = 0;
    const struct kernel_row *rows = kernel_rows(&row_count);
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < row_count; i++) {
        if (isa_name ? rows[i].isa != only : !kernel_isa_available(rows[i].isa))
            continue;
        if (filter && !strstr(rows[i].name, filter))
            continue;
        run++;
        failed += !check_run_row(&rows[i], seed, false);
    }
    printf("%u of %u variants passed (seed %llu)\n", run - failed, run, (unsigned long long)seed);
    return failed > 0 || run == 0;
}

static void list(void)
{
    uint32_t count;
    const struct kernel_row *rows = kernel_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        printf("%s %s %s %s %u\n", rows[i].operation, rows[i].dtype, kernel_isa_name(rows[i].isa),
               rows[i].name, rows[i].tile);
}

int main(int argc, char **argv)
{
    uint64_t seed = random_os_u64() % 1000000;
    const char *filter = NULL;
    const char *isa = NULL;
    bool selftest = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--selftest") == 0) {
            selftest = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            list();
            return 0;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            char *end;
            seed = strtoull(argv[++i], &end, 10);
            if (end == argv[i] || *end) {
                fprintf(stderr, "--seed takes a number, not \"%s\".\n", argv[i]);
                return EXIT_USAGE;
            }
        } else if (i + 1 < argc && strcmp(argv[i], "--filter") == 0) {
            filter = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--isa") == 0) {
            isa = argv[++i];
        } else {
            fprintf(stderr, "usage: kernel_check [--seed N] [--filter TEXT] [--isa NAME] "
                            "[--list] | --selftest\n");
            return EXIT_USAGE;
        }
    }
    return selftest ? selftest_run(seed) : run_all(seed, filter, isa);
}
