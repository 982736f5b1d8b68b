/* The driver ends at every kind of fault, and the input that brought it about is kept. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

struct fault {
    char name[16];
    bool quick; /* caught at once, with sanitizers, too */
};

static struct fault faults[] = {
    {"read", true},   {"bus", true},   {"check", true}, {"stack", true},
    {"memory", true}, {"block", true}, {"spin", false},
};

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Runs the driver over the corpus that is there, in the folder. */
static int run_in(const char *folder)
{
    int status = 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const int nothing = open("/dev/null", O_WRONLY);
        if (chdir(folder) == 0 && dup2(nothing, STDERR_FILENO) >= 0)
            execl(BATON_FUZZ_FAULTS, "fuzz_faults", "corpus", "0", (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void run_fault(const char *name, bool caught)
{
    char folder[] = "/tmp/baton-driver-XXXXXX", path[96], kept[64] = "";
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/corpus", folder);
    CHECK(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/corpus/input", folder);
    write_file(path, name);
    const int status = run_in(folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/corpus", folder);
    rmdir(path);
    snprintf(path, sizeof path, "%s/fuzz_faults.crash", folder);
    FILE *crash = fopen(path, "rb");
    if (crash != NULL) {
        cr_assert_not_null(fgets(kept, sizeof kept, crash));
        fclose(crash);
        unlink(path);
    }
    CHECK(rmdir(folder) == 0);
    if (!caught) {
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        cr_assert_null(crash);
        return;
    }
    cr_assert(WIFSIGNALED(status), "%s ends with %d", name, status);
    cr_assert_str_eq(kept, name);
}

ParameterizedTestParameters(fuzz_driver, a_fault_is_caught_and_its_input_kept)
{
    return cr_make_param_array(struct fault, faults, ARRAY_COUNT(faults));
}

ParameterizedTest(struct fault *fault, fuzz_driver, a_fault_is_caught_and_its_input_kept)
{
#ifdef __SANITIZE_ADDRESS__
    if (!fault->quick)
        cr_skip_test("takes ten seconds of CPU time with sanitizers");
#endif
    run_fault(fault->name, true);
}

Test(fuzz_driver, what_is_harmless_is_nothing_to_keep)
{
    run_fault("harmless", false);
}
