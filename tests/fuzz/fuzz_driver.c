/* Runs a fuzz target without libFuzzer: first every file of its corpus as it is, then changed
 * copies of them until time or count is over. In the long form of the tests (BATON_TEST_LONG=1) it
 * is the count alone that ends it.
 *
 *   fuzz_TARGET CORPUS [SECONDS [COUNT [SEED]]]
 *
 * An input that crashes, takes more than its CPU time or allocates more than some times its size
 * ends the process; what it was then lies in fuzz_TARGET.crash in the working directory. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_memory.h"

enum {
    SEEDS_MAX = 256,
    INPUT_BYTES_MAX = 1 << 16,
    CHANGES_MAX = 6,
    STACK_BYTES = 1 << 16,      /* of the handler, when the other one is used up */
    MEMORY_TIMES = 64,          /* what an input may allocate: so many times its size … */
    MEMORY_BYTES_MAX = 4 << 20, /* … and that */
    EXIT_WRONG_USAGE = 2,
};

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, CPU_SECONDS_MAX = 10 };

/* A report ends in abort(), whose handler is ours; the sanitizer keeps the other signals. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "abort_on_error=1:allocator_may_return_null=1:allow_user_segv_handler=0:"
           "handle_sigbus=1:handle_sigfpe=1";
}
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}
#else
enum { SANITIZED = 0, CPU_SECONDS_MAX = 3 };
#endif

struct seeds {
    struct buffer items[SEEDS_MAX];
    size_t count;
};

/* The input that runs, for the handler. */
static const uint8_t *current;
static size_t current_bytes;
static char crash_path[64];
static size_t most_bytes; /* that any input had allocated */

static void on_end(int number)
{
    static const char words[] = "an input crashed or took too long, it is in the .crash file\n";
    const int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, current, current_bytes) == (ssize_t)current_bytes &&
        write(STDERR_FILENO, words, sizeof words - 1) > 0)
        close(fd);
    signal(number, SIG_DFL);
    raise(number == SIGVTALRM ? SIGKILL : number);
}

static void handle(int number)
{
    const struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void limits_set(const char *program)
{
    const char *slash = strrchr(program, '/');
    snprintf(crash_path, sizeof crash_path, "%.40s.crash", slash != NULL ? slash + 1 : program);
    static char stack[STACK_BYTES];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    CHECK(SANITIZED || sigaltstack(&other, NULL) == 0);
    handle(SIGVTALRM);
    handle(SIGABRT);
    for (size_t i = 0; i < 4 && !SANITIZED; i++)
        handle((const int[]){SIGSEGV, SIGBUS, SIGFPE, SIGILL}[i]);
}

static void run(const uint8_t *data, size_t bytes)
{
    const struct itimerval limit = {.it_value = {.tv_sec = CPU_SECONDS_MAX}};
    current = data;
    current_bytes = bytes;
    CHECK(setitimer(ITIMER_VIRTUAL, &limit, NULL) == 0);
    fuzz_memory_limit(MEMORY_TIMES * bytes + MEMORY_BYTES_MAX);
    CHECK(LLVMFuzzerTestOneInput(data, bytes) == 0);
    if (fuzz_memory_most() > most_bytes)
        most_bytes = fuzz_memory_most();
    fuzz_memory_limit(SIZE_MAX);
}

static void seed_read(struct seeds *seeds, const char *folder, const char *name)
{
    char path[512];
    CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && seeds->count < SEEDS_MAX);
    struct buffer *seed = &seeds->items[seeds->count++];
    buffer_reserve(seed, INPUT_BYTES_MAX);
    seed->size = fread(seed->data, 1, INPUT_BYTES_MAX, file);
    CHECK(feof(file) || seed->size == INPUT_BYTES_MAX);
    fclose(file);
}

static int name_compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of their names, so that a seed number means the same everywhere. */
static bool seeds_read(struct seeds *seeds, const char *folder)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, name_compare);
    if (count < 0)
        return false;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            seed_read(seeds, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return seeds->count > 0;
}

static size_t word_count(void)
{
    size_t count = 0;
    while (fuzz_words[count] != NULL)
        count++;
    return count;
}

/* Puts bytes in place of `taken` bytes at `at`, as far as there is room. */
static void input_put(struct buffer *input, size_t at, size_t taken, const char *bytes,
                      size_t count)
{
    if (input->size - taken + count > INPUT_BYTES_MAX)
        return;
    struct buffer tail = {0};
    buffer_add(&tail, input->data + at + taken, input->size - at - taken);
    input->size = at;
    buffer_add(input, bytes, count);
    buffer_add(input, tail.data, tail.size);
    buffer_free(&tail);
}

static void change(struct buffer *input, const struct seeds *seeds, struct random *random)
{
    enum { WAYS = 7, PART_MAX = 64 };
    const size_t at = input->size > 0 ? (size_t)random_below(random, input->size) : 0;
    const size_t left = input->size - at;
    size_t part = 1 + (size_t)random_below(random, PART_MAX);
    part = part < left ? part : left;
    const struct buffer *other = &seeds->items[random_below(random, seeds->count)];
    char byte = (char)random_next(random);
    switch (random_below(random, WAYS)) {
    case 0: // another byte
        input_put(input, at, part > 0 ? 1 : 0, &byte, 1);
        break;
    case 1: // one bit
        if (left > 0)
            input->data[at] = (char)(input->data[at] ^ (1 << random_below(random, 8)));
        break;
    case 2: // less
        input_put(input, at, part, "", 0);
        break;
    case 3: { // a part twice
        struct buffer twice = {0};
        buffer_add(&twice, input->data + at, part);
        input_put(input, at, 0, twice.data, twice.size);
        buffer_free(&twice);
        break;
    }
    case 4: // a word
        if (word_count() > 0) {
            const char *word = fuzz_words[random_below(random, word_count())];
            input_put(input, at, random_below(random, 2) == 0 ? part : 0, word, strlen(word));
        }
        break;
    case 5: // a part of another input
        if (other->size > 0) {
            const size_t from = (size_t)random_below(random, other->size);
            const size_t most = other->size - from;
            input_put(input, at, part, other->data + from, part < most ? part : most);
        }
        break;
    default: // one byte many times
        for (size_t i = 0; i < part; i++)
            input_put(input, at, 0, &byte, 1);
        break;
    }
}

int main(int argc, char **argv)
{
    static struct seeds seeds;
    if (argc < 2 || !seeds_read(&seeds, argv[1])) {
        fprintf(stderr, "usage: %s CORPUS [SECONDS [COUNT [SEED]]], CORPUS has a file\n", argv[0]);
        return EXIT_WRONG_USAGE;
    }
    const char *wanted = getenv("BATON_TEST_LONG");
    const bool by_count = argc > 3 && wanted != NULL && strcmp(wanted, "1") == 0;
    const uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 10;
    const uint64_t most = argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX;
    struct random random;
    random_init(&random, argc > 4 ? strtoull(argv[4], NULL, 10) : 1);
    limits_set(argv[0]);
    for (size_t i = 0; i < seeds.count; i++)
        run((const uint8_t *)seeds.items[i].data, seeds.items[i].size);
    const uint64_t end_ns = clock_now_ns(clock_monotonic()) + seconds * NS_PER_S;
    uint64_t count = 0;
    struct buffer input = {0};
    while (count < most && (by_count || clock_now_ns(clock_monotonic()) < end_ns)) {
        const struct buffer *seed = &seeds.items[random_below(&random, seeds.count)];
        buffer_clear(&input);
        buffer_add(&input, seed->data, seed->size);
        for (uint64_t left = 1 + random_below(&random, CHANGES_MAX); left > 0; left--)
            change(&input, &seeds, &random);
        run((const uint8_t *)input.data, input.size);
        count++;
    }
    printf("%zu inputs of the corpus and %llu changed ones, of which one allocated %zu bytes\n",
           seeds.count, (unsigned long long)count, most_bytes);
    buffer_free(&input);
    for (size_t i = 0; i < seeds.count; i++)
        buffer_free(&seeds.items[i]);
    return 0;
}
