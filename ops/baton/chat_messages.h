/* What `baton ask` and `baton run` share: the messages of one question. */
#ifndef BATON_OPS_BATON_CHAT_MESSAGES_H
#define BATON_OPS_BATON_CHAT_MESSAGES_H

#include "base/bytes.h"
#include "base/json.h"

/* An array: the system message unless that is NULL, and the user's. */
void chat_messages_put(struct json_writer *writer, const char *system, const struct buffer *prompt);

#endif
