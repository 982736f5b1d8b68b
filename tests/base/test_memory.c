/* What is available, read from small copies of /proc and /sys. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

enum { KIB = 1024 };

static char root[] = "/tmp/baton-memory-XXXXXX";

static void set_up(void)
{
    CHECK(mkdtemp(root) != NULL);
}

static void tear_down(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
}

TestSuite(memory, .init = set_up, .fini = tear_down);

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* it may be there */
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void put_meminfo(void)
{
    put("/proc/meminfo", "MemTotal:       24000 kB\nMemFree: 1 kB\nMemAvailable:   8000 kB\n");
}

Test(memory, without_proc_nothing_is_known)
{
    cr_assert_eq(memory_available_below(root), 0);
}

Test(memory, the_host_decides_without_groups)
{
    put_meminfo();
    cr_assert_eq(memory_available_below(root), 8000 * KIB);
    put("/proc/self/cgroup", "8:pids:/\n0::/\nnonsense\n");
    cr_assert_eq(memory_available_below(root), 8000 * KIB);
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/memory.current", "4096\n");
    cr_assert_eq(memory_available_below(root), 8000 * KIB, "no limit is set");
}

Test(memory, the_tightest_group_of_version_2_decides)
{
    put_meminfo();
    put("/proc/self/cgroup", "0::/system.slice/baton.service\n");
    put("/sys/fs/cgroup/system.slice/baton.service/memory.max", "5000000\n");
    put("/sys/fs/cgroup/system.slice/baton.service/memory.current", "1000000\n");
    cr_assert_eq(memory_available_below(root), 4000000);
    put("/sys/fs/cgroup/system.slice/baton.service/memory.stat",
        "anon 600000\ninactive_file 300000\nactive_file 7\n");
    cr_assert_eq(memory_available_below(root), 4300000, "page cache can be dropped");
    put("/sys/fs/cgroup/system.slice/memory.max", "3000000\n");
    put("/sys/fs/cgroup/system.slice/memory.current", "2900000\n");
    cr_assert_eq(memory_available_below(root), 100000);
    put("/sys/fs/cgroup/system.slice/memory.current", "3100000\n");
    cr_assert_eq(memory_available_below(root), 0, "over it already");
}

/* The path is the host's; what is mounted is the container's own group. */
Test(memory, a_container_of_version_1_sees_its_own_group)
{
    put_meminfo();
    put("/proc/self/cgroup", "9:name=systemd:/docker/7f\n4:memory:/docker/7f\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
    put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
    cr_assert_eq(memory_available_below(root), 1600000);
}

Test(memory, this_host_tells)
{
    cr_assert_gt(memory_available(), 1 << 20);
}
