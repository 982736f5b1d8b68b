/* Keys of a converted file. */
#ifndef BATON_MODEL_NET_CONVERT_INTERNAL_H
#define BATON_MODEL_NET_CONVERT_INTERNAL_H

#include "model/format/gguf_writer.h"
#include "model/format/model_file.h"
#include "model/net/net_config_internal.h"

/* The architecture as a GGUF file has it: where folders have a name of their own, llama. */
const struct architecture *convert_architecture(const struct net_config *config);
/* Writes all keys; *text_out as in model_convert. */
enum status convert_keys(struct gguf_writer *writer, const struct model_file *file,
                         const struct net_config *config, uint32_t file_type, bool *text_out,
                         struct error *error);

#endif
