#include "ops/baton/chat_messages.h"

#include <string.h>

static void put(struct json_writer *writer, const char *role, const char *text, size_t bytes)
{
    json_open_object(writer);
    json_key(writer, "role");
    json_put_text(writer, role);
    json_key(writer, "content");
    json_put_string(writer, text, bytes);
    json_close_object(writer);
}

void chat_messages_put(struct json_writer *writer, const char *system, const struct buffer *prompt)
{
    json_open_array(writer);
    if (system != NULL)
        put(writer, "system", system, strlen(system));
    put(writer, "user", prompt->size == 0 ? "" : prompt->data, prompt->size);
    json_close_array(writer);
}
