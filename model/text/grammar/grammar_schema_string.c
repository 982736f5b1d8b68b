/* Strings: lengths, patterns and formats. Each is a language of what may stand between the quotes;
 * where there are several they are intersected. */
#include "base/check.h"
#include "model/text/grammar/grammar_schema_internal.h"

#define DIGIT "[0-9]"
#define HEX4  "[0-9a-fA-F]{1,4}"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define DAY                                                                                        \
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define YEAR  "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
#define ZONE  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-z0-9]{1,20}(-[a-z0-9]{1,20}){0,2}"
#define HOST  LABEL "(\\." LABEL "){0,6}"

#define PLAIN   "[A-Za-z0-9._~!$&'()*+,;=:@-]"
#define POINTER "(/([A-Za-z0-9 ._-]|~[01])*)*"
#define MAIL    "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@" LABEL "(\\." LABEL "){1,4}"
#define ADDRESS                                                                                    \
    "[a-z][a-z0-9+.-]{0,15}://" HOST "(:[1-9][0-9]{0,3})?(/" PLAIN "*)*(\\?(" PLAIN "|[/?])*)?"    \
    "(#(" PLAIN "|[/?])*)?"

/* Texts that fit a format, rather too few of them than too many. Formats that are not here say
 * nothing about what is valid. */
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", YEAR "-" DAY},
    {"time", CLOCK ZONE},
    {"date-time", YEAR "-" DAY "T" CLOCK ZONE},
    {"duration", "P(" DIGIT "{1,4}W|" DIGIT "{1,4}Y|" DIGIT "{1,4}M|" DIGIT "{1,4}D|T" DIGIT
                 "{1,4}H|T" DIGIT "{1,4}M|T" DIGIT "{1,4}S)"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", MAIL},
    {"idn-email", MAIL},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"ipv6", "((" HEX4 ":){7}" HEX4 "|(" HEX4 ":){6}:" HEX4 "|(" HEX4 ":){5}(:" HEX4 "){1,2}|(" HEX4
             ":){4}(:" HEX4 "){1,3}|(" HEX4 ":){3}(:" HEX4 "){1,4}|(" HEX4 ":){2}(:" HEX4
             "){1,5}|" HEX4 ":(:" HEX4 "){1,6}|:(:" HEX4 "){1,7}|(" HEX4 ":){1,7}:|::)"},
    {"uri", ADDRESS},
    {"iri", ADDRESS},
    {"uri-reference", "(/" PLAIN "+)+"},
    {"iri-reference", "(/" PLAIN "+)+"},
    {"uri-template", "(/[A-Za-z0-9._~-]+)+"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(0|[1-9][0-9]{0,3})(#|" POINTER ")"},
    {"regex", "[A-Za-z0-9 ]{0,64}"},
};

const char *schema_format_regex(const char *name, size_t bytes)
{
    for (size_t i = 0; i < ARRAY_COUNT(formats); i++)
        if (strlen(formats[i].name) == bytes && memcmp(formats[i].name, name, bytes) == 0)
            return formats[i].regex;
    return NULL;
}

/* Narrows what was found before (*any: nothing yet) by one more language, which it takes. */
static bool narrow(struct grammar_build *build, bool *any, struct language *all,
                   struct language *more)
{
    if (*any) {
        *any = false;
        *all = *more;
        return true;
    }
    struct language both;
    const bool fine = language_both(build, all, more, &both);
    language_free(all);
    language_free(more);
    *all = both;
    return fine;
}

static bool regex_narrow(struct schema *schema, const char *text, size_t bytes, bool somewhere,
                         bool *any, struct language *all)
{
    struct regex regex;
    struct language language;
    const bool fine = regex_parse(schema->build, text, bytes, true, &regex) &&
                      language_regex(schema->build, &regex, somewhere, LANGUAGE_JSON, &language) &&
                      narrow(schema->build, any, all, &language);
    regex_free(&regex);
    return fine;
}

/* The patterns and formats of one member. */
static bool member_narrow(struct schema *schema, const struct conjunction *all, uint32_t member,
                          bool *any, struct language *out)
{
    static const char *const keywords[] = {"pattern", "format"};
    for (size_t i = 0; i < ARRAY_COUNT(keywords); i++) {
        const struct json *value = member_get(all, member, keywords[i]);
        const uint32_t place = all->members[member].place;
        size_t bytes;
        if (value == NULL)
            continue;
        if (json_kind(value) != JSON_STRING)
            return schema_fail(schema, STATUS_INVALID, place, keywords[i], "it is a string");
        const char *text = json_string(value, &bytes);
        const char *format = i == 1 ? schema_format_regex(text, bytes) : NULL;
        if (i == 1 && format == NULL)
            continue;
        schema_path(schema, place, keywords[i], schema->build->place);
        if (!regex_narrow(schema, format != NULL ? format : text,
                          format != NULL ? strlen(format) : bytes, format == NULL, any, out))
            return false;
        if (language_empty(out))
            return schema_unmet(schema, place, keywords[i], "no string fits this and the rest");
    }
    return true;
}

bool schema_strings(struct schema *schema, const struct conjunction *all, bool *any,
                    struct language *out)
{
    uint32_t least = 0;
    uint32_t most = UINT32_MAX;
    const uint32_t place = all->count > 0 ? all->members[0].place : 0;
    struct grammar_build *build = schema->build;
    *any = true;
    *out = (struct language){0};
    bool fine = schema_count(schema, all, "minLength", true, &least) &&
                schema_count(schema, all, "maxLength", false, &most);
    for (uint32_t m = 0; m < all->count && fine; m++)
        fine = member_narrow(schema, all, m, any, out);
    if (fine && (least > 0 || most != UINT32_MAX)) {
        struct language lengths;
        schema_path(schema, place, least > 0 ? "minLength" : "maxLength", build->place);
        if (least > most)
            fine = schema_unmet(schema, place, "minLength", "it is over maxLength");
        else if (least > GRAMMAR_REPEAT_MAX || (most > GRAMMAR_REPEAT_MAX && most != UINT32_MAX))
            fine = schema_fail(schema, STATUS_LIMIT, place, NULL,
                               "lengths are over the limit of %d beside a pattern or enum",
                               GRAMMAR_REPEAT_MAX);
        else
            fine =
                language_lengths(build, least, most, &lengths) && narrow(build, any, out, &lengths);
        if (fine && language_empty(out))
            fine = schema_unmet(schema, place, "minLength", "no string fits this and the rest");
    }
    build->place[0] = '\0';
    if (!fine)
        language_free(out);
    return fine;
}

/* Lengths alone need no language, so that strings may be written with every escape. */
static bool lengths_alone(struct schema *schema, const struct conjunction *all)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *format = member_get(all, m, "format");
        size_t bytes = 0;
        const char *name =
            format != NULL && json_kind(format) == JSON_STRING ? json_string(format, &bytes) : "";
        if (member_get(all, m, "pattern") != NULL || schema_format_regex(name, bytes) != NULL)
            return false;
    }
    return schema->build->status == STATUS_OK;
}

void schema_string(struct schema *schema, const struct conjunction *all, uint32_t from, uint32_t to)
{
    struct grammar_build *build = schema->build;
    const uint32_t place = all->count > 0 ? all->members[0].place : 0;
    uint32_t least = 0;
    uint32_t most = UINT32_MAX;
    if (!lengths_alone(schema, all)) {
        struct language language;
        bool any;
        if (!schema_strings(schema, all, &any, &language))
            return;
        const uint32_t open = build_text(build, from, "\"");
        build_empty(build, build_text(build, build_language(build, open, &language), "\""), to);
        language_free(&language);
        return;
    }
    if (!schema_count(schema, all, "minLength", true, &least) ||
        !schema_count(schema, all, "maxLength", false, &most))
        return;
    if (least > most) {
        schema_unmet(schema, place, "minLength", "it is over maxLength");
        return;
    }
    enum { LENGTH_MAX = 1 << 15 };
    if (most > LENGTH_MAX && least <= LENGTH_MAX)
        most = most == UINT32_MAX ? UINT32_MAX : LENGTH_MAX; // shorter ones fit too
    if (least > LENGTH_MAX)
        schema_fail(schema, STATUS_LIMIT, place, "minLength", "it is over the limit of %d",
                    LENGTH_MAX);
    else if (least == 0 && most == UINT32_MAX)
        build_call(build, from, to, schema->rules.string);
    else
        build_empty(build, json_string_of(build, &schema->rules, from, least, most), to);
}
