/* Reading keys of config.json: what is absent or null stays as it was, what is of another kind or
 * outside its bounds is an error that names the key and the object. Shared by net_config_folder*.c
 * only. */
#ifndef BATON_MODEL_NET_NET_CONFIG_FOLDER_INTERNAL_H
#define BATON_MODEL_NET_NET_CONFIG_FOLDER_INTERNAL_H

#include "base/json.h"
#include "model/net/net_config_internal.h"

/* The object being read; `where` names it in messages. */
struct folder_source {
    const struct json *object;
    const char *name;  /* of the folder */
    const char *where; /* "config.json", "rope_scaling" … */
    struct error *error;
};

/* NULL when absent or null. */
const struct json *folder_find(const struct folder_source *source, const char *key);
/* Either of two names of the same thing. */
const char *folder_either(const struct folder_source *source, const char *key, const char *other);

/* Errors: the key is absent or of another kind; it asks for arithmetic that is not computed. */
enum status folder_not_kind(const struct folder_source *source, const char *key,
                            const char *wanted);
enum status folder_refused(const struct folder_source *source, const char *key, const char *what);
/* Refuses a number that is not the neutral one; an empty list is neutral, too. */
enum status folder_refuse_number(const struct folder_source *source, const char *key,
                                 double neutral);

/* A count within [1, max], which must be there; or may be absent. */
enum status folder_read_count(const struct folder_source *source, const char *key, uint32_t max,
                              uint32_t *out);
enum status folder_read_count_or(const struct folder_source *source, const char *key, uint32_t max,
                                 uint32_t *out);
/* A number within (0, max] that is more than 0 as a float. */
enum status folder_read_real_or(const struct folder_source *source, const char *key, double max,
                                float *out);
enum status folder_read_bool_or(const struct folder_source *source, const char *key, bool *out);
/* Must be there; owned by the object. */
enum status folder_read_text(const struct folder_source *source, const char *key, const char **out);

/* net_config_folder_rope.c; after the windows, which say how many rotations there are. */
enum status folder_read_rope(const struct folder_source *source, struct net_config *config);
/* net_config_folder_quant.c */
enum status folder_read_quantization(const struct folder_source *source, struct net_config *config);

#endif
