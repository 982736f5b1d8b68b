/* Who is let in, and who may work with whom. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "router/fleet.h"

static const struct text_info info = {
    .vocab_count = 300, .context_tokens = 2048, .digest = {11, 22}, .name = "tiny"};
static const struct fleet_rules rules = {.models = {{"tiny", &info}}, .model_count = 1};
static const uint8_t boot_id[16] = {1};
static uint8_t digest[16];

static struct msg_hello good_hello(void)
{
    store_le64(digest, 11);
    store_le64(digest + 8, 22);
    return (struct msg_hello){
        .role = WORKER_DECODE,
        .node = wire_str("d0"),
        .boot_id = {boot_id, 16},
        .identity = {.model = wire_str("tiny"), .tokenizer_digest = {digest, 16}},
        .context_tokens = 1024,
        .vocab_count = 320,
        .pages_total = 10,
    };
}

static void expect_refused(const struct msg_hello *hello, const char *a, const char *b)
{
    struct error error = {.text = ""};
    uint32_t model;
    cr_expect_neq(fleet_hello_check(&rules, hello, &model, &error), STATUS_OK);
    cr_expect(strstr(error.text, a) && strstr(error.text, b), "%s", error.text);
}

Test(fleet, takes_what_fits)
{
    const struct msg_hello hello = good_hello();
    struct error error = {.text = ""};
    uint32_t model = 9;
    cr_expect_eq(fleet_hello_check(&rules, &hello, &model, &error), STATUS_OK, "%s", error.text);
    cr_expect_eq(model, 0);
}

Test(fleet, refuses_what_does_not_and_says_both_values)
{
    struct msg_hello hello = good_hello();
    hello.role = 0;
    expect_refused(&hello, "role", "0");
    hello = good_hello();
    hello.boot_id.bytes = 3;
    expect_refused(&hello, "boot id", "3");
    hello = good_hello();
    hello.node = wire_str("");
    expect_refused(&hello, "no name", "");
    hello = good_hello();
    hello.node = wire_str("a\"b");
    expect_refused(&hello, "0x22", "printable");
    hello = good_hello();
    hello.vocab_count = 299;
    expect_refused(&hello, "299", "300");
    hello = good_hello();
    hello.context_tokens = 4096;
    expect_refused(&hello, "4096", "2048");
    hello = good_hello();
    hello.context_tokens = 0;
    expect_refused(&hello, "context_tokens", "0");
    hello = good_hello();
    hello.identity.rank_count = 2;
    expect_refused(&hello, "rank_count", "2");
    static const uint8_t other[16] = {0xab};
    hello = good_hello();
    hello.identity.tokenizer_digest.data = other;
    expect_refused(&hello, "tokenizer_digest", "ab");
    hello.identity.tokenizer_digest = (struct wire_bin){NULL, 0};
    expect_refused(&hello, "tokenizer_digest", "00000000");
}

Test(fleet, pairs_only_what_computes_the_same)
{
    struct fleet_identity a = {.profile_id = 7, .layout = {.page_tokens = 64}};
    struct fleet_identity b = a;
    struct error error = {.text = ""};
    snprintf(b.model, sizeof b.model, "another label");
    cr_expect_eq(fleet_identity_compare(&a, &b, &error), STATUS_OK, "a name is only a label");
    b.profile_id = 8;
    cr_expect_eq(fleet_identity_compare(&a, &b, &error), STATUS_MISMATCH);
    cr_expect(strstr(error.text, "profile") && strstr(error.text, "7") && strstr(error.text, "8"));
    b = a;
    b.layout.page_tokens = 32;
    cr_expect_eq(fleet_identity_compare(&a, &b, &error), STATUS_MISMATCH);
    cr_expect(strstr(error.text, "64") && strstr(error.text, "32"), "%s", error.text);
    /* The probe differs too, but that is no help to anybody. */
    b = a;
    b.layout.dtype = 1;
    b.probe_digest = 5;
    cr_expect_eq(fleet_identity_compare(&a, &b, &error), STATUS_MISMATCH);
    cr_expect(strstr(error.text, "KV dtype is f32") && strstr(error.text, "bf16"), "%s",
              error.text);
    b = a;
    b.weights_digest[3] = 9;
    cr_expect_eq(fleet_identity_compare(&a, &b, &error), STATUS_MISMATCH);
    cr_expect(strstr(error.text, "weights"), "%s", error.text);
}

/* ---- several models ---- */

static const struct text_info large = {
    .vocab_count = 300, .context_tokens = 4096, .digest = {11, 22}, .name = "family-7b"};
static const struct text_info stranger = {
    .vocab_count = 300, .context_tokens = 4096, .digest = {33, 44}, .name = "tiny"};
/* Two of one family, and one that only has the name of the first one's file. */
static const struct fleet_rules family = {
    .models = {{"small", &info}, {"large", &large}, {"alien", &stranger}}, .model_count = 3};

static void set_tokenizer(const struct text_info *text)
{
    store_le64(digest, text->digest.low);
    store_le64(digest + 8, text->digest.high);
}

static void expect_model(const struct msg_hello *hello, uint32_t index)
{
    struct error error = {.text = ""};
    uint32_t model = 99;
    cr_expect_eq(fleet_hello_check(&family, hello, &model, &error), STATUS_OK, "%s", error.text);
    cr_expect_eq(model, index);
}

static void expect_stranger(const struct fleet_rules *served, const struct msg_hello *hello,
                            const char *a, const char *b)
{
    struct error error = {.text = ""};
    uint32_t model = 99;
    cr_expect_eq(fleet_hello_check(served, hello, &model, &error), STATUS_MISMATCH);
    cr_expect(strstr(error.text, a) && strstr(error.text, b), "%s", error.text);
    cr_expect_eq(model, 99);
}

Test(fleet_models, the_tokenizer_tells_whose_worker_it_is_then_the_name_in_its_file)
{
    struct msg_hello hello = good_hello();
    expect_model(&hello, 0);
    hello.identity.model = wire_str("family-7b");
    expect_model(&hello, 1);
    set_tokenizer(&stranger);
    expect_model(&hello, 2); /* the only one of this tokenizer: a name is only a label */
}

Test(fleet_models, a_worker_may_be_told_its_model)
{
    struct msg_hello hello = good_hello();
    hello.model_name = wire_str("large");
    expect_model(&hello, 1);
    hello.model_name = wire_str("large ");
    expect_stranger(&family, &hello, "\"large \"", "\"small\", \"large\", \"alien\"");
    hello.model_name = wire_str("alien");
    expect_stranger(&family, &hello, "tokenizer_digest", "at the router (model tiny)");
}

Test(fleet_models, one_that_fits_none_hears_which_are_served)
{
    struct msg_hello hello = good_hello();
    static const uint8_t other[16] = {0xab};
    hello.identity.tokenizer_digest.data = other;
    expect_stranger(&family, &hello, "000000ab at the worker (model tiny)",
                    "\"small\", \"large\", \"alien\"");
}

Test(fleet_models, one_that_fits_several_is_not_guessed_at)
{
    struct msg_hello hello = good_hello();
    hello.identity.model = wire_str("other file");
    expect_stranger(&family, &hello, "\"small\", \"large\":", "called otherwise");
    /* One file under two names. */
    const struct fleet_rules twins = {.models = {{"a", &info}, {"b", &info}}, .model_count = 2};
    hello.identity.model = wire_str("tiny");
    expect_stranger(&twins, &hello, "\"a\", \"b\":", "called the same");
    hello.model_name = wire_str("b");
    struct error error;
    uint32_t model;
    cr_expect_eq(fleet_hello_check(&twins, &hello, &model, &error), STATUS_OK);
    cr_expect_eq(model, 1);
}

/* Every limit of a model is its own, not that of the first one. */
Test(fleet_models, what_else_must_fit_is_asked_of_its_own_model)
{
    struct msg_hello hello = good_hello();
    hello.context_tokens = 4096;
    expect_stranger(&family, &hello, "4096", "2048");
    hello.model_name = wire_str("large");
    expect_model(&hello, 1);
}
