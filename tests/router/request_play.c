#include "tests/router/request_play.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct request_limits limits = {
    .total_ms = 60000, .reserve_ms = 5000, .report_ms = 50};

void play_sum_up(struct play *play)
{
    for (uint32_t i = 0; i < play->actions.count; i++) {
        const struct request_action *action = &play->actions.items[i];
        switch (action->kind) {
        case ACTION_PLACE:
            play->places++;
            break;
        case ACTION_RESERVE:
            play->reserves++;
            break;
        case ACTION_PREFILL:
            play->prefills++;
            break;
        case ACTION_CANCEL:
            play->cancels_prefill += action->worker == PREFILL_NODE;
            play->cancels_decode += action->worker == DECODE_NODE;
            play->cancel_attempt = action->attempt;
            break;
        case ACTION_RELEASE_PREFILL:
            cr_assert(action->worker == PREFILL_NODE || action->worker == OTHER_NODE);
            play->prefill_charges--;
            break;
        case ACTION_RELEASE_DECODE:
            cr_assert_eq(action->worker, DECODE_NODE);
            play->decode_charges--;
            break;
        case ACTION_DELIVER:
            for (uint32_t k = 0; k < action->step.tokens.count; k++) {
                const size_t at = strlen(play->text);
                cr_assert_eq(action->step.first_position + k, PROMPT + at);
                play->text[at] = (char)action->step.tokens.items[k];
            }
            break;
        case ACTION_SCORE:
            cr_assert_fail("nothing asks for scores");
            break;
        case ACTION_CHOICE_END:
            cr_assert_fail("there is one choice only");
            break;
        case ACTION_FINISH:
            play->finishes++;
            break;
        case ACTION_FAIL:
            play->failures++;
            break;
        case ACTION_DROP:
            play->drops++;
            break;
        }
    }
}

void play_feed(struct play *play, struct request_event event)
{
    request_handle(&play->request, &event, play->now_ns, &play->actions);
    play_sum_up(play);
}

void play_begin(struct play *play)
{
    memset(play, 0, sizeof *play);
    play->now_ns = 1000;
    request_init(&play->request, 7, &limits, play->now_ns);
    play->request.prompt_tokens = PROMPT;
    play->request.max_tokens = 20;
}

void play_encoded(struct play *play)
{
    play_feed(play, (struct request_event){.kind = EVENT_ENCODED});
}

void play_placed(struct play *play, worker_handle prefill, worker_handle decode)
{
    const struct placement placement = {.prefill_charge = prefill ? PROMPT : 0,
                                        .decode_charge = decode ? 20 : 0};
    play->prefill_charges += prefill != 0;
    play->decode_charges += decode != 0;
    play_feed(play, (struct request_event){.kind = EVENT_PLACED,
                                           .placement = &placement,
                                           .prefill = prefill,
                                           .decode = decode});
}

void play_reserved(struct play *play)
{
    play_feed(play, (struct request_event){.kind = EVENT_RESERVED, .worker = DECODE_NODE});
}

void play_tokens(struct play *play, worker_handle worker, uint32_t offset, const char *letters,
                 enum finish_code finish)
{
    int32_t ids[64];
    const uint32_t count = (uint32_t)strlen(letters);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = letters[i];
    const struct msg_step step = {
        .first_position = PROMPT + offset, .tokens = {ids, count}, .finish = finish, .stop_id = 99};
    play_feed(play, (struct request_event){.kind = EVENT_TOKENS, .worker = worker, .step = &step});
}

void play_simple(struct play *play, enum request_event_kind kind, worker_handle worker)
{
    struct request_failure failure;
    request_failure_set(&failure, 503, "test", "for the test");
    play_feed(play, (struct request_event){.kind = kind, .worker = worker, .failure = &failure});
}

void play_reach(struct play *play, enum request_state state)
{
    play_begin(play);
    if (state >= REQUEST_QUEUED)
        play_encoded(play);
    if (state >= REQUEST_RESERVING)
        play_placed(play, PREFILL_NODE, DECODE_NODE);
    if (state >= REQUEST_PREFILLING)
        play_reserved(play);
    if (state >= REQUEST_DECODING)
        play_tokens(play, PREFILL_NODE, 0, "a", FINISH_NONE);
    if (state == REQUEST_REPORTING) {
        play->request.reports_wanted = true;
        play_tokens(play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    }
    cr_assert_eq(play->request.state, state, "%s", request_state_name(play->request.state));
}

void play_expect_ended(struct play *play)
{
    cr_expect_eq(play->request.state, REQUEST_ENDED);
    cr_expect_eq(play->finishes + play->failures + play->drops, 1);
    cr_expect_eq(play->prefill_charges, 0);
    cr_expect_eq(play->decode_charges, 0);
    cr_expect_eq(request_deadline_ns(&play->request), 0);
    for (int kind = 0; kind < REQUEST_EVENT_COUNT; kind++) {
        play_simple(play, (enum request_event_kind)kind, DECODE_NODE);
        cr_expect_eq(play->actions.count, 0, "%s did something after the end",
                     request_event_name((enum request_event_kind)kind));
    }
    request_free(&play->request);
}

void play_choice_token(struct play *play, worker_handle worker, uint32_t choice, uint32_t offset,
                       enum finish_code finish)
{
    const int32_t id = 'a';
    const struct msg_step step = {.choice = choice,
                                  .first_position = PROMPT + offset,
                                  .tokens = {&id, finish == FINISH_STOP ? 0 : 1},
                                  .finish = finish,
                                  .stop_id = 99};
    const struct request_event event = {.kind = EVENT_TOKENS, .worker = worker, .step = &step};
    request_handle(&play->request, &event, play->now_ns, &play->actions);
}

void play_expect_actions(const struct play *play, const struct expected_action *expected,
                         uint32_t count)
{
    cr_assert_eq(play->actions.count, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct request_action *action = &play->actions.items[i];
        cr_assert_eq(action->kind, expected[i].kind, "action %u is %d", i, (int)action->kind);
        const uint32_t choice =
            action->kind == ACTION_DELIVER ? action->step.choice : action->choice;
        cr_assert_eq(choice, expected[i].choice, "action %u is of choice %u", i, choice);
    }
}
