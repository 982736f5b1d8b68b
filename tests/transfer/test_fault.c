/* Orders for faults: what is understood, what is refused with the names there are, when they fire;
 * and a mover with faults between two ends of a hand-off. */
#include <criterion/criterion.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/transfer/every_mover.h"
#include "tests/transfer/handoff_fixture.h"
#include "transfer/fault.h"

static void arm(const char *spec)
{
    struct error error = {.text = ""};
    log_init("test", LOG_LEVEL_ERROR);
    cr_assert_eq(fault_arm(spec, true, &error), STATUS_OK, "%s", error.text);
}

static void expect_refused(const char *spec, const char *a, const char *b)
{
    struct error error = {.text = ""};
    cr_expect_lt((int)fault_arm(spec, true, &error), 0, "%s", spec);
    cr_expect(strstr(error.text, a) && strstr(error.text, b), "%s: %s", spec, error.text);
    cr_expect_not(fault_armed);
}

Test(fault, is_nothing_until_it_is_armed)
{
    struct error error;
    cr_expect_not(fault_armed);
    cr_expect_eq(fault_at(FAULT_OFFER), FAULT_NO);
    cr_expect_eq(fault_arm(NULL, true, &error), STATUS_OK);
    cr_expect_eq(fault_arm("", true, &error), STATUS_OK);
    log_init("test", LOG_LEVEL_ERROR);
    cr_expect_eq(fault_arm("offer:drop", false, &error), STATUS_OK);
    cr_expect_not(fault_armed);
    for (int i = 0; i < 10; i++)
        cr_expect_eq(fault_at(FAULT_OFFER), FAULT_NO);
}

Test(fault, fires_at_the_passage_that_was_ordered)
{
    arm("offer:3:drop,grant:corrupt,done:2+:short");
    for (int i = 1; i <= 6; i++) {
        cr_expect_eq(fault_at(FAULT_OFFER), i == 3 ? FAULT_DROP : FAULT_NO);
        cr_expect_eq(fault_at(FAULT_GRANT), i == 1 ? FAULT_CORRUPT : FAULT_NO);
        cr_expect_eq(fault_at(FAULT_DONE), i >= 2 ? FAULT_SHORT : FAULT_NO);
        cr_expect_eq(fault_at(FAULT_LANDED), FAULT_NO);
    }
}

Test(fault, wrong_orders_list_what_there_is)
{
    expect_refused("ofer:drop", "\"ofer\"", "data-receive");
    expect_refused("offer:explode", "\"explode\"", "die, stop, delay, drop, corrupt, short");
    expect_refused("data-receive:drop", "data-receive", "die, stop, delay, corrupt, refuse");
    expect_refused("offer", "POINT[:N[+]]:ACTION", "\"offer\"");
    expect_refused("offer:0:drop", "\"0\"", "passage");
    expect_refused("offer:1-:drop", "\"1-\"", "passage");
    expect_refused("offer:-1:drop", "\"-1\"", "passage");
    expect_refused("offer:99999999999:drop", "99999999999", "1000000000");
    expect_refused("offer:1:drop:more", "POINT[:N[+]]:ACTION", "offer:1:drop:more");
    expect_refused("offer:drop,", "\"\"", "POINT[:N[+]]:ACTION");
    expect_refused("offer:drop,,grant:drop", "\"\"", "POINT");
    expect_refused("offer:drop,offer:drop,offer:drop,offer:drop,offer:drop,offer:drop,offer:drop,"
                   "offer:drop,offer:drop,offer:drop,offer:drop,offer:drop,offer:drop,offer:drop,"
                   "offer:drop,offer:drop,offer:drop",
                   "16", "faults");
}

static int state_of_child(const char *spec)
{
    int state;
    const pid_t child = fork_mortal();
    cr_assert_geq(child, 0);
    if (child == 0) {
        arm(spec);
        fault_at(FAULT_ENGINE_STEP);
        _exit(3);
    }
    cr_assert_eq(waitpid(child, &state, WUNTRACED), child);
    if (WIFSTOPPED(state)) {
        cr_assert_eq(kill(child, SIGCONT), 0);
        int end;
        cr_assert_eq(waitpid(child, &end, 0), child);
        cr_assert(WIFEXITED(end) && WEXITSTATUS(end) == 3);
    }
    return state;
}

Test(fault, kills_stops_and_delays)
{
    int state = state_of_child("engine-step:die");
    cr_expect(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
    state = state_of_child("engine-step:stop");
    cr_expect(WIFSTOPPED(state) && WSTOPSIG(state) == SIGSTOP);
    const uint64_t begin_ns = clock_now_ns(clock_monotonic());
    state = state_of_child("engine-step:delay");
    cr_expect(WIFEXITED(state) && WEXITSTATUS(state) == 3);
    cr_expect_geq(clock_now_ns(clock_monotonic()) - begin_ns, 500 * (uint64_t)NS_PER_MS);
}

#define EVERY_MOVER(name) EVERY_MOVER_OF(fault_mover, name)

/* One hand-off under each fault: all bytes are right or none count, pages and peers come back, and
 * the next one is well. */
EVERY_MOVER(a_hand_off_lands_whole_or_not_at_all)
{
    static const char *const specs[] = {
        "hello:drop",          "hello:corrupt",    "hello:short",
        "welcome:drop",        "welcome:corrupt",  "welcome:short",
        "welcome:refuse",      "offer:drop",       "offer:corrupt",
        "offer:short",         "grant:drop",       "grant:corrupt",
        "grant:short",         "data-send:drop",   "data-send:corrupt",
        "data-send:short",     "data-send:2:drop", "data-receive:corrupt",
        "data-receive:refuse", "done:drop",        "done:corrupt",
        "done:short",          "landed:drop",      "landed:corrupt",
        "landed:short",        "abort:drop",       "data-send:drop,abort:1+:drop",
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        static struct pair_fix fix;
        arm(specs[i]);
        fix_init(&fix, mover_with_faults(ops), 4, 65536);
        fix.limits.hello_ms = 1000; /* a greeting that is lost is waited for */
        fix_start(&fix);
        struct fix_job *job = fix_run(&fix, 9);
        TURN_UNTIL(fix.loop, job->ended);
        TURN_UNTIL(fix.loop, job->landed || job->failed || fix.decode.reserved_count == 9);
        if (job->landed) {
            fix_check(job);
            fix_release(job);
        }
        handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
        TURN_UNTIL(fix.loop, fix_pages_are_back(&fix));
        struct fix_job *next = NULL;
        do { /* a peer that was lost rests before it is dialled again */
            if (next) {
                handoff_cancel(fix.decode.receiver, next->handoff, STATUS_CANCELED, "");
                TURN_UNTIL(fix.loop, fix_pages_are_back(&fix));
            }
            next = fix_run(&fix, 5);
            TURN_UNTIL(fix.loop, next->ended);
        } while (next->ended_status != STATUS_OK && fix.job_count < 6);
        cr_assert_eq(next->ended_status, STATUS_OK, "%s: %s", specs[i], next->ended_text);
        fix_check(next);
        fix_end(&fix);
    }
}
