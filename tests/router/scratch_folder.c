#include "tests/router/scratch_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

static char folder[256];
static pid_t owner;

/* A child that was forked and ends without exec leaves it alone. */
static void remove_folder(void)
{
    if (getpid() != owner)
        return;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", folder);
}

const char *scratch_folder(void)
{
    if (owner == getpid())
        return folder;
    snprintf(folder, sizeof folder, "%s/baton-router-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    owner = getpid();
    CHECK(atexit(remove_folder) == 0);
    return folder;
}
