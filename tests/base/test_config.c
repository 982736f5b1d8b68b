#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "tests/base/capture.h"

struct options {
    bool verbose;
    const char *model;
    struct config_texts routers;
    uint32_t max_batch;
    uint64_t seed;
    double share;
    uint64_t memory_bytes;
    uint32_t lease_ms;
    uint32_t kv_dtype;
    struct config_amount room;
};

#define ROW(name, kind, field, fallback, choices, help, min, max)                                  \
    {                                                                                              \
        name, kind, offsetof(struct options, field), fallback, choices, help, min, max             \
    }
static const struct config_row rows[] = {
    ROW("model", CONFIG_TEXT, model, NULL, "FILE", "The model file.", 0, 0),
    ROW("router", CONFIG_TEXTS, routers, "127.0.0.1:8100", "HOST:PORT", "A router to join.", 0, 0),
    ROW("max-batch", CONFIG_U32, max_batch, "8", "N", "Sequences in one step", 1, 256),
    ROW("seed", CONFIG_U64, seed, NULL, "N", "Where random numbers begin.", 0, 0),
    ROW("share", CONFIG_F64, share, "0.5", "X", "Part of the memory for pages.", 0, 1),
    ROW("memory", CONFIG_BYTES, memory_bytes, "64M", NULL, "Bytes of the page pool.", 65536,
        0x1p40),
    ROW("lease", CONFIG_MS, lease_ms, "3s", NULL, "How long a promise holds.", 10, 600000),
    ROW("kv-dtype", CONFIG_CHOICE, kv_dtype, "bf16", "f32|bf16", "Type of the cache.", 0, 0),
    ROW("room", CONFIG_AMOUNT, room, NULL, NULL, "Size or share.", 0, 0),
    ROW("verbose", CONFIG_FLAG, verbose, NULL, NULL,
        "Say more. This help text is long enough that it has to be wrapped on a terminal.", 0, 0),
};
static const struct config_command command = {
    .program = "baton-test",
    .summary = "A program that only reads its options.",
    .examples = "baton-test --model m.gguf\nbaton-test --max-batch 4 prompt",
    .operands = "[PROMPT]",
    .rows = rows,
    .row_count = ARRAY_COUNT(rows),
};

static struct options options;
static struct capture capture;
static int first_operand;
static int argument_count;
static char *arguments[64];

static enum config_result parse_as(const struct config_command *as, const char *line)
{
    static char copy[1024];
    snprintf(copy, sizeof copy, "baton-test %s", line);
    argument_count = 0;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        arguments[argument_count++] = word;
    arguments[argument_count] = NULL;
    first_operand = -1;
    return config_parse(as, argument_count, arguments, &options, &first_operand);
}

static enum config_result parse(const char *line)
{
    return parse_as(&command, line);
}

/* The one line a wrong command line gives. */
static const char *complaint(const char *line)
{
    capture_begin(&capture, STDERR_FILENO);
    const enum config_result result = parse(line);
    const char *text = capture_end(&capture);
    cr_assert_eq(result, CONFIG_EXIT_USAGE, "%s", line);
    const char *end = strchr(text, '\n');
    cr_assert(end && !end[1], "not one line: %s", text);
    cr_assert_eq(strncmp(text, "baton-test: ", 12), 0, "%s", text);
    return text;
}

static void clear_environment(void)
{
    extern char **environ;
    for (char **entry = environ; entry && *entry;) {
        if (strncmp(*entry, "BATON_", 6) != 0) {
            entry++;
            continue;
        }
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*entry, "="), *entry);
        unsetenv(name);
    }
}

TestSuite(config, .init = clear_environment);

Test(config, defaults_stand_where_nothing_is_said)
{
    memset(&options, 0xAA, sizeof options);
    cr_assert_eq(parse(""), CONFIG_RUN);
    cr_assert_null(options.model);
    cr_assert_eq(options.routers.count, 1);
    cr_assert_str_eq(options.routers.items[0], "127.0.0.1:8100");
    cr_assert_eq(options.max_batch, 8);
    cr_assert_eq(options.seed, 0);
    cr_assert_eq(options.share, 0.5);
    cr_assert_eq(options.memory_bytes, 64 << 20);
    cr_assert_eq(options.lease_ms, 3000);
    cr_assert_eq(options.kv_dtype, 1);
    cr_assert_not(options.verbose);
    cr_assert_eq(first_operand, argument_count);
}

Test(config, the_command_line_wins_over_the_environment_over_the_default)
{
    setenv("BATON_MAX_BATCH", "16", 1);
    setenv("BATON_KV_DTYPE", "f32", 1);
    setenv("BATON_VERBOSE", "yes", 1);
    setenv("BATON_ROUTER", "a:1, b:2", 1);
    setenv("BATON_LEASE", "", 1); /* empty is as good as unset */
    cr_assert_eq(parse("--max-batch 32"), CONFIG_RUN);
    cr_assert_eq(options.max_batch, 32);
    cr_assert_eq(options.kv_dtype, 0);
    cr_assert(options.verbose);
    cr_assert_eq(options.lease_ms, 3000);
    cr_assert_eq(options.routers.count, 2);
    cr_assert_str_eq(options.routers.items[1], "b:2");
    cr_assert_eq(parse("--router c:3 --verbose=no --router=d:4"), CONFIG_RUN);
    cr_assert_eq(options.max_batch, 16);
    cr_assert_not(options.verbose);
    cr_assert_eq(options.routers.count, 2);
    cr_assert_str_eq(options.routers.items[0], "c:3");
    cr_assert_str_eq(options.routers.items[1], "d:4");
}

Test(config, a_list_in_the_environment_is_split_where_no_backslash_is)
{
    static const struct {
        const char *text;
        uint32_t count;
        const char *pieces[3];
    } lists[] = {
        {"a", 1, {"a"}},
        {"a,b c", 3, {"a", "b", "c"}},
        {" ,\t\na\n\n,b, ", 2, {"a", "b"}},
        {"/m/one\\,two.gguf,x", 2, {"/m/one,two.gguf", "x"}},
        {"a=/my\\ models/q.gguf b=/n", 2, {"a=/my models/q.gguf", "b=/n"}},
        {"a\\\\,b", 2, {"a\\", "b"}},
        {"\\a\\,\\,\\,,b", 2, {"a,,,", "b"}},
        {"a\\", 1, {"a\\"}},
        {"\\", 1, {"\\"}},
        {", \n", 0, {NULL}},
    };
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++) {
        setenv("BATON_ROUTER", lists[i].text, 1);
        cr_assert_eq(parse(""), CONFIG_RUN);
        cr_assert_eq(options.routers.count, lists[i].count, "%s", lists[i].text);
        for (uint32_t k = 0; k < lists[i].count; k++)
            cr_expect_str_eq(options.routers.items[k], lists[i].pieces[k], "%s", lists[i].text);
    }
    cr_assert_eq(parse("--router a,b\\,c"), CONFIG_RUN);
    cr_assert_eq(options.routers.count, 1, "a value on the command line is one");
    cr_assert_str_eq(options.routers.items[0], "a,b\\,c");
}

Test(config, values_are_read_in_their_units)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"65536", 65536},   {"64K", 65536},       {"64KiB", 65536},   {"1m", 1 << 20},
                 {"2G", 2ull << 30}, {"1TiB", 1ull << 40}, {"100000B", 100000}};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        char line[64];
        snprintf(line, sizeof line, "--memory %s", sizes[i].text);
        cr_assert_eq(parse(line), CONFIG_RUN);
        cr_assert_eq(options.memory_bytes, sizes[i].bytes, "%s", line);
    }
    static const struct {
        const char *text;
        uint32_t ms;
    } times[] = {{"250", 250}, {"250ms", 250}, {"3s", 3000}, {"10m", 600000}};
    for (size_t i = 0; i < ARRAY_COUNT(times); i++) {
        char line[64];
        snprintf(line, sizeof line, "--lease=%s", times[i].text);
        cr_assert_eq(parse(line), CONFIG_RUN);
        cr_assert_eq(options.lease_ms, times[i].ms, "%s", line);
    }
    cr_assert_eq(parse("--seed 18446744073709551615 --share 1e-3"), CONFIG_RUN);
    cr_assert_eq(options.seed, UINT64_MAX);
    cr_assert_eq(options.share, 1e-3);
}

Test(config, operands_move_to_the_end)
{
    cr_assert_eq(parse("one --max-batch 4 two --verbose three"), CONFIG_RUN);
    cr_assert_eq(first_operand, 4);
    cr_assert_eq(argument_count - first_operand, 3);
    cr_assert_str_eq(arguments[4], "one");
    cr_assert_str_eq(arguments[5], "two");
    cr_assert_str_eq(arguments[6], "three");
    cr_assert_str_eq(arguments[1], "--max-batch");
    cr_assert_eq(options.max_batch, 4);
    cr_assert_eq(parse("-- --verbose -"), CONFIG_RUN);
    cr_assert_not(options.verbose);
    cr_assert_eq(argument_count - first_operand, 2);
    cr_assert_str_eq(arguments[first_operand], "--verbose");
    cr_assert_str_eq(arguments[first_operand + 1], "-");
}

Test(config, a_command_without_operands_takes_none)
{
    struct config_command bare = command;
    bare.operands = NULL;
    capture_begin(&capture, STDERR_FILENO);
    const enum config_result result = parse_as(&bare, "--verbose stray");
    cr_assert_str_eq(capture_end(&capture), "baton-test: unexpected argument \"stray\"; "
                                            "baton-test --help lists the options\n");
    cr_assert_eq(result, CONFIG_EXIT_USAGE);
}

Test(config, complaints_name_the_value_and_the_limit)
{
    static const struct {
        const char *line, *wanted;
    } cases[] = {
        {"--max-batch 900", "--max-batch: 900 is over the limit of 256"},
        {"--max-batch 0", "--max-batch: 0 is under the limit of 1"},
        {"--max-batch 4x", "--max-batch: \"4x\" is not a whole number"},
        {"--max-batch -4", "--max-batch: \"-4\" is not a whole number"},
        {"--max-batch=", "--max-batch: \"\" is not a whole number"},
        {"--max-batch 99999999999999999999", "does not fit in 64 bits"},
        {"--seed 18446744073709551616", "does not fit in 64 bits"},
        {"--memory 99999999999G", "does not fit in 64 bits"},
        {"--memory 4K", "--memory: 4K is under the limit of 64K"},
        {"--memory 64Q", "\"64Q\" is not a size such as 4096, 64K or 2G"},
        {"--lease 1h", "--lease: 1h is over the limit of 10m"},
        {"--lease soon", "\"soon\" is not a time such as 250ms, 3s or 1m"},
        {"--share 1.5", "--share: 1.5 is over the limit of 1"},
        {"--share half", "\"half\" is not a number"},
        {"--share nan", "\"nan\" is not a number"},
        {"--kv-dtype int8", "--kv-dtype: \"int8\" is none of f32|bf16"},
        {"--kv-dtype bf1", "\"bf1\" is none of"},
        {"--verbose=perhaps", "\"perhaps\" is neither yes nor no"},
        {"--model", "--model needs a value: --model FILE"},
        {"--max-bach 4", "unknown option --max-bach; did you mean --max-batch?"},
        {"--kv_dtype f32", "unknown option --kv_dtype; did you mean --kv-dtype?"},
        {"--batch=4", "unknown option --batch; did you mean --max-batch?"},
        {"--frobnicate", "unknown option --frobnicate; baton-test --help lists all"},
        {"-x", "unknown option -x; baton-test --help lists all"},
        {"-model x", "unknown option -model"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const char *text = complaint(cases[i].line);
        cr_assert_not_null(strstr(text, cases[i].wanted), "%s: %s", cases[i].line, text);
    }
}

Test(config, too_many_texts_are_refused)
{
    char line[512] = "";
    for (int i = 0; i <= CONFIG_TEXTS_MAX; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "--router r%d ", i);
    cr_assert_not_null(strstr(complaint(line), "\"r16\" is one more than the limit of 16"));
}

Test(config, a_row_may_take_fewer_texts)
{
    struct config_row few[ARRAY_COUNT(rows)];
    struct config_command with_few = command;
    memcpy(few, rows, sizeof few);
    few[1].max = 2;
    with_few.rows = few;
    cr_assert_eq(parse_as(&with_few, "--router a --router b"), CONFIG_RUN);
    capture_begin(&capture, STDERR_FILENO);
    const enum config_result result = parse_as(&with_few, "--router a --router b --router c");
    capture_end(&capture);
    cr_assert_eq(result, CONFIG_EXIT_USAGE);
    cr_assert_not_null(strstr(capture.text, "--router: \"c\" is one more than the limit of 2"));
    capture_begin(&capture, STDOUT_FILENO);
    cr_assert_eq(parse_as(&with_few, "--help"), CONFIG_EXIT_OK);
    capture_end(&capture);
    cr_assert_not_null(strstr(capture.text, "May be given up to 2"), "%s", capture.text);
}

Test(config, complaints_about_the_environment_name_the_variable)
{
    setenv("BATON_MAX_BATCH", "many", 1);
    cr_assert_not_null(strstr(complaint(""), "environment variable BATON_MAX_BATCH: \"many\""));
    /* But they do not stand between a person and the help. */
    capture_begin(&capture, STDOUT_FILENO);
    const enum config_result result = parse("--help");
    capture_end(&capture);
    cr_assert_eq(result, CONFIG_EXIT_OK);
}

Test(config, help_fits_the_screen_and_tells_all)
{
    capture_begin(&capture, STDOUT_FILENO);
    const enum config_result result = parse("--verbose -h --nonsense");
    capture_end(&capture);
    char *text = capture.text;
    cr_assert_eq(result, CONFIG_EXIT_OK);
    static const char *const wanted[] = {
        "baton-test: A program that only reads its options.\n",
        "Usage: baton-test [OPTION]... [PROMPT]\n",
        "\n  baton-test --max-batch 4 prompt\n",
        "  --max-batch N ",
        "Sequences in one step. [default 8, 1 to 256,",
        "BATON_MAX_BATCH]",
        "[default 64M, 64K to 1T,",
        "[default 3s, 10ms to 10m,",
        "--kv-dtype f32|bf16",
        "May be given up to 16",
        "--memory SIZE",
        "--lease TIME",
        "-h, --help",
        "--version",
    };
    for (size_t i = 0; i < ARRAY_COUNT(wanted); i++)
        cr_assert_not_null(strstr(text, wanted[i]), "%s is not in\n%s", wanted[i], text);
    cr_assert_lt(strstr(text, "Examples:"), strstr(text, "Options"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        cr_assert_lt(strlen(line), 80, "%s", line);
        cr_assert_neq(line[strlen(line) - 1], ' ', "%s|", line);
    }
}

Test(config, version)
{
    capture_begin(&capture, STDOUT_FILENO);
    const enum config_result result = parse("--version");
    cr_assert_str_eq(capture_end(&capture), "baton-test " BATON_VERSION "\n");
    cr_assert_eq(result, CONFIG_EXIT_OK);
}

Test(config, what_was_done_and_misuse_have_their_words_and_exit_codes)
{
    struct error error;
    error_set(&error, STATUS_IO, "the disk is gone");
    capture_begin(&capture, STDERR_FILENO);
    const int failed = config_end(&command, STATUS_IO, &error);
    const int done = config_end(&command, STATUS_OK, &error);
    const int misused = config_misused(&command, "%d names are given", 3);
    cr_assert_str_eq(capture_end(&capture),
                     "baton-test: the disk is gone\n"
                     "baton-test: 3 names are given, see `baton-test --help`\n");
    cr_assert_eq(failed, 1);
    cr_assert_eq(done, 0);
    cr_assert_eq(misused, 2);
}

Test(config, begin_goes_on_or_says_how_to_end)
{
    char *const words[][3] = {{"baton-test", "--seed", "7"},
                              {"baton-test", "--version", NULL},
                              {"baton-test", "--seed", "x"}};
    static const int codes[] = {CONFIG_GO_ON, 0, 2};
    for (int i = 0; i < 3; i++) {
        struct options options;
        char *argv[] = {words[i][0], words[i][1], words[i][2], NULL};
        capture_begin(&capture, i == 1 ? STDOUT_FILENO : STDERR_FILENO);
        const int code = config_begin(&command, i == 1 ? 2 : 3, argv, &options, NULL);
        capture_end(&capture);
        cr_assert_eq(code, codes[i]);
    }
}

static enum status act(const void *given, struct error *error)
{
    const struct options *o = given;
    return o->max_batch == 8 ? STATUS_OK
                             : error_set(error, STATUS_LIMIT, "%u is not 8", o->max_batch);
}

Test(config, does_one_thing_with_what_it_needs)
{
    struct config_command needy = command;
    needy.needed = "model";
    needy.operands = NULL;
    static const struct {
        char *words[5];
        int count, code;
        const char *said;
    } rows[] = {
        {{"baton-test"}, 1, 2, "baton-test: --model FILE is needed, see `baton-test --help`\n"},
        {{"baton-test", "--model", "m"}, 3, 0, ""},
        {{"baton-test", "--model", "m", "--max-batch", "9"}, 5, 1, "baton-test: 9 is not 8\n"},
        {{"baton-test", "--model"}, 2, 2, "baton-test: --model needs a value: --model FILE\n"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char *words[6] = {NULL};
        memcpy(words, rows[i].words, sizeof rows[i].words);
        capture_begin(&capture, STDERR_FILENO);
        const int code = config_do(&needy, rows[i].count, words, &options, act);
        cr_expect_str_eq(capture_end(&capture), rows[i].said);
        cr_expect_eq(code, rows[i].code, "row %zu", i);
    }
}

Test(config, a_default_that_is_not_valid_is_a_fault, .signal = SIGABRT)
{
    static const struct config_row wrong[] = {
        ROW("max-batch", CONFIG_U32, max_batch, "0", "N", "Sequences.", 1, 256)};
    struct config_command bad = command;
    bad.rows = wrong;
    bad.row_count = 1;
    parse_as(&bad, "");
}

Test(config, an_amount_is_a_size_or_a_share)
{
    cr_assert_eq(parse(""), CONFIG_RUN);
    cr_assert(options.room.bytes == 0 && options.room.share == 0);
    cr_assert_eq(parse("--room 8G"), CONFIG_RUN);
    cr_assert(options.room.bytes == 8ull << 30 && options.room.share == 0);
    cr_assert_eq(parse("--room 50%"), CONFIG_RUN);
    cr_assert(options.room.bytes == 0 && options.room.share == 0.5);
    cr_assert_eq(parse("--room 64K --room 100%"), CONFIG_RUN);
    cr_assert(options.room.bytes == 0 && options.room.share == 1);
    cr_assert_eq(parse("--room 12.5%"), CONFIG_RUN);
    cr_assert_eq(options.room.share, 0.125);
    static const char *const wrong[][2] = {
        {"--room 0", "no room at all"},        {"--room 0%", "0% is not above 0%"},
        {"--room 100.1%", "at most 100%"},     {"--room -5%", "-5% is not above"},
        {"--room %", "a share such as 50%"},   {"--room x%", "a share such as 50%"},
        {"--room 5%%", "a share such as 50%"}, {"--room 1.5G", "a size such as 64M"},
        {"--room nan%", "a share such as"},    {"--room 99999999T", "64 bits"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        const char *text = complaint(wrong[i][0]);
        cr_assert_not_null(strstr(text, wrong[i][1]), "%s: %s", wrong[i][0], text);
    }
}
