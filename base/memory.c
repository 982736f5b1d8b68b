#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 256 };

/* The files of one version of control groups. */
struct cgroup_version {
    const char *mount;
    const char *limit, *usage;
    const char *droppable; /* key in memory.stat of page cache that nobody has used lately */
};
static const struct cgroup_version versions[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

static FILE *open_below(const char *root, const char *folder, const char *group, const char *name)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s%s/%s", root, folder, group, name) >= PATH_MAX)
        return NULL;
    return fopen(path, "re");
}

/* The number after `key` at the start of a line; false when there is none. "max" is no number. */
static bool read_value(FILE *file, const char *key, uint64_t *out)
{
    char line[LINE_BYTES];
    const size_t bytes = strlen(key);
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, key, bytes) == 0 && sscanf(line + bytes, "%" SCNu64, out) == 1;
    if (file != NULL)
        fclose(file);
    return found;
}

/* What one group leaves to its members; UINT64_MAX where it sets no limit. */
static uint64_t group_room(const char *root, const struct cgroup_version *version,
                           const char *group)
{
    uint64_t limit, usage, droppable = 0;
    if (!read_value(open_below(root, version->mount, group, version->limit), "", &limit) ||
        !read_value(open_below(root, version->mount, group, version->usage), "", &usage))
        return UINT64_MAX;
    (void)read_value(open_below(root, version->mount, group, "memory.stat"), version->droppable,
                     &droppable); /* without it the room is only smaller */
    usage -= droppable < usage ? droppable : usage;
    return limit > usage ? limit - usage : 0;
}

/* Every group above sets a limit too; inside a container the upper ones are not to be seen, and the
 * mount itself is the container's group. */
static uint64_t smallest_room(const char *root, const struct cgroup_version *version, char *group)
{
    uint64_t room = UINT64_MAX;
    for (;;) {
        const uint64_t own = group_room(root, version, group);
        room = own < room ? own : room;
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return room;
        *slash = '\0';
    }
}

/* "9:memory:/a/b" is version 1, "0::/a/b" version 2. */
static uint64_t groups_room(const char *root)
{
    char line[PATH_MAX];
    uint64_t room = UINT64_MAX;
    FILE *file = open_below(root, "/proc", "/self", "cgroup");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        const bool second = names[1] == '\0';
        if (!second && strcmp(names + 1, "memory") != 0)
            continue;
        const uint64_t own = smallest_room(root, &versions[second ? 0 : 1], group);
        room = own < room ? own : room;
    }
    if (file != NULL)
        fclose(file);
    return room;
}

uint64_t memory_available_below(const char *root)
{
    uint64_t kib;
    if (!read_value(open_below(root, "/proc", "", "meminfo"), "MemAvailable:", &kib))
        return 0;
    const uint64_t room = groups_room(root);
    return room < kib * 1024 ? room : kib * 1024;
}

uint64_t memory_available(void)
{
    return memory_available_below("");
}
